"""Group Relative Policy Optimization: each completion's reward is compared with those of its group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Advise, Check, Default, Forbid, Ignored, Plugin, RenameKey, grouped, key, only_when
from memcfg_grpo.options import (
    ADAPTIVE,
    CORRECTION,
    OWN,
    adaptive,
    correction,
    correction_max,
    correction_min,
    correction_mode,
    delta,
    epsilon,
    epsilon_high,
    generations,
    head_fp32,
    here,
    level,
    loss,
    own,
)

PAPER = "https://arxiv.org/abs/2402.03300"
vllm = key("generation.backend") == "vllm"
tiny = key("model.source") == "tiny"
corrects = here & vllm & correction.on


def _ordered(values: Mapping[str, Any]) -> str | None:
    low, high = values["grpo.correction_min"], values["grpo.correction_max"]
    if low is None or high is None or low < high:
        return None
    return f"`grpo.correction_min={low}` is not below `grpo.correction_max={high}`"


def _largest(values: Mapping[str, Any]) -> str | None:
    high = values["grpo.epsilon"] if values["grpo.epsilon_high"] is None else values["grpo.epsilon_high"]
    if high >= 1:
        return None
    return (
        f"`grpo.loss=cispo` takes `grpo.epsilon_high` for the largest ratio, and {high} is below 1: set it to 5.0 say"
    )


def _lower(values: Mapping[str, Any]) -> str | None:
    given = values["grpo.epsilon"]
    if values["grpo.epsilon_high"] is None or given == epsilon.default:
        return None
    return (
        f"`grpo.loss=cispo` clips ratios from above only, at `grpo.epsilon_high`, so `grpo.epsilon={given}` is not read"
    )


def _penalised(values: Mapping[str, Any]) -> str | None:
    if values["grpo.beta"] or not values["grpo.kl_correction"]:
        return None
    return "`grpo.beta=0.0` adds no KL penalty, so `grpo.kl_correction=true` is not read"


def _ratio_read(values: Mapping[str, Any]) -> str | None:
    if values["grpo.beta"] and values["grpo.kl_correction"]:
        return None
    return (
        "`grpo.loss=vespo` weighs tokens by whole completions already, so `grpo.importance_level=sequence` is not read"
    )


def _within(values: Mapping[str, Any]) -> str | None:
    low, first, high = (values[f"grpo.entropy_coef{name}"] for name in ("_min", "", "_max"))
    if low <= first <= high:
        return None
    return f"`grpo.entropy_coef={first}` does not lie between `grpo.entropy_coef_min={low}` and `grpo.entropy_coef_max={high}`"


def _bounded(values: Mapping[str, Any]) -> str | None:
    if values["grpo.correction_min"] is None and values["grpo.correction_max"] is None:
        return "`grpo.correction_min` and `grpo.correction_max` are both null: set one, for example `grpo.correction_max=3.0`"
    return None


plugin = Plugin(
    name="grpo",
    doc="online reinforcement with groups of completions",
    options=[*OWN, *ADAPTIVE, *CORRECTION],
    rules=[
        *grouped.rules(
            "grpo", own, alone="an advantage is a difference within a group, and a group of one has none"
        ),
        Default(
            loss, "dapo", when=here, id="grpo.loss.default",
            because="it divides by the tokens of the whole batch, so that each counts the same however long its completion is",
            ref="https://arxiv.org/abs/2503.14476",
        ),
        Default(
            generations, 8, when=here, id="grpo.num_generations.default",
            because="eight completions estimate a prompt's mean reward well enough", ref=PAPER,
        ),
        Default(
            key("run.batch_size"), 8, when=here, id="grpo.run.batch_size",
            because="a micro-batch then holds one whole group of the default size",
        ),
        Default(
            key("run.batch_size"), 64, when=here & tiny, id="grpo.run.batch_size.tiny",
            because="a small model samples eight groups almost as fast as one, and eight prompts say more",
        ),
        Default(level, "token", when=here, id="grpo.importance_level.default", because="the loss is a sum over tokens"),
        Default(
            adaptive, False, when=here, id="grpo.entropy_adaptive.default", because="the entropy bonus is constant"
        ),
        Default(head_fp32, False, when=here, id="grpo.head_fp32.default", because="the head runs in the model's dtype"),
        Default(
            correction, True, when=here & vllm, id="grpo.correction.default",
            because="vLLM's kernels give other probabilities than the model that is trained",
        ),
        Default(
            correction_mode, "sequence_mask", when=corrects, id="grpo.correction_mode.default",
            because="a completion whose ratio is out of bounds is left out whole",
        ),
        Forbid(
            corrects & (loss == "vespo") & correction_mode.isin("sequence_mask", "sequence_truncate"),
            id="grpo.correction_mode.vespo",
            because="VESPO weighs tokens itself, so only corrections by token can be combined with it",
            suggest=["grpo.correction_mode=token_mask", "grpo.correction=false"],
        ),
        Forbid(
            here & head_fp32.on & key("peft.head").on, id="grpo.head_fp32.adapter",
            because="the head's float32 copy would not hold the adapter",
            suggest=["grpo.head_fp32=false", "peft.head=false"],
        ),
        Forbid(
            here & head_fp32.on & (key("loss.kernel") == "full"), id="grpo.head_fp32.full",
            because="the kernel `full` takes the logits as the model itself makes them",
            suggest=["loss.kernel=torch", "grpo.head_fp32=false"],
        ),
        Check(
            ["grpo.entropy_coef", "grpo.entropy_coef_min", "grpo.entropy_coef_max"], _within, when=here & adaptive.on,
            id="grpo.entropy_coef.within", because="an adaptive bonus begins and stays between its bounds",
        ),
        Check(
            ["grpo.epsilon", "grpo.epsilon_high"], _largest, when=here & (loss == "cispo"), id="grpo.epsilon_high.cispo",
            because="this loss clips the ratio itself, not its distance from one", ref="https://arxiv.org/abs/2506.13585",
            suggest=["grpo.epsilon_high=5.0"],
        ),
        Check(
            [correction_min, correction_max], _ordered, when=corrects, id="grpo.correction.ordered",
            because="the bounds enclose the ratios that are kept",
        ),
        Check(
            [correction_min, correction_max], _bounded,
            when=corrects & correction_mode.isin("token_truncate", "sequence_truncate"), id="grpo.correction.bounded",
            because="truncating needs a bound to truncate at", suggest=["grpo.correction_max=3.0"],
        ),
        Check(
            [epsilon, epsilon_high], _lower, when=here & (loss == "cispo"), id="grpo.epsilon.cispo",
            because="this loss has no lower clip",
        ),
        Check(
            ["grpo.beta", "grpo.kl_correction"], _penalised, when=here, id="grpo.kl_correction.penalty",
            because="what does not exist cannot be corrected",
        ),
        Check(
            ["grpo.beta", "grpo.kl_correction"], _ratio_read, when=here & (loss == "vespo") & (level == "sequence"),
            id="grpo.importance_level.unread", because="a ratio by completion is read by the correction of a KL penalty alone",
        ),
        *(
            Ignored(
                bound, when=here & loss.isin("sapo", "vespo"), id=f"{bound.key}.unclipped",
                because="this loss weighs tokens by a smooth function of the ratio and clips nothing",
            )
            for bound in (epsilon, epsilon_high)
        ),
        Ignored(
            delta, when=here & loss.isin("sapo", "vespo", "cispo"), id="grpo.delta.unclipped",
            because="this loss does not clip the ratio on both sides",
        ),
        *(
            Ignored(
                option, when=here & vllm & correction.off, id=f"{option.key}.off", because="nothing is corrected",
            )
            for option in (correction_mode, correction_max, correction_min)
        ),
        Advise(
            "`grpo.loss=luspo` was derived for ratios by completion: consider `grpo.importance_level=sequence`",
            when=here & (loss == "luspo") & (level == "token"), id="grpo.importance_level.luspo", level="warning",
        ),
        Advise(
            "`grpo.loss=vespo` was derived for ratios by token: consider `grpo.importance_level=token`",
            when=here & (loss == "vespo") & (level == "sequence"), id="grpo.importance_level.vespo", level="warning",
        ),
        Advise(
            "ratios by completion with a loss that averages over tokens give long completions more weight: "
            "consider `grpo.loss=grpo`",
            when=here & (level == "sequence") & loss.isin("bnpo", "dr_grpo", "dapo", "cispo"),
            id="grpo.importance_level.token_mean", level="warning",
        ),
        RenameKey(
            "grpo.correction_cap", correction_max, id="grpo.correction_cap.renamed", because="there is a lower bound as well"
        ),
        *only_when(here, *OWN, because="only `trainer=grpo` reads it"),
        *only_when(here & adaptive.on, *ADAPTIVE, because="only an adaptive entropy bonus reads it"),
        *only_when(here & vllm, *CORRECTION, because="only completions that vLLM sampled need correcting"),
    ],
    provides={"trainer.name": ("grpo",)},
    active=here,
    hooks="memcfg_grpo.hooks",
    allowed={"dead-value grpo.num_generations=1": "a rule says why, which the least of a range cannot"},
)  # fmt: skip
