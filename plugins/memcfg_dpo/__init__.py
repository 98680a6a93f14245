"""Direct Preference Optimization: pairs of a better and a worse completion, against a frozen reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from memcfg import (
    Bool,
    Check,
    Default,
    Enum,
    Forbid,
    Ignored,
    Plugin,
    RemovedKey,
    Setting,
    key,
    only_when,
)
from memcfg.dropout import dropout_rules

LOSSES = (
    "sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired",
    "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm",
)  # fmt: skip
NO_DIVERGENCE = ("nca_pair", "bco_pair", "sppo_hard", "aot", "aot_unpaired", "apo_zero", "apo_down", "sft")
"""Losses made in a way that leaves no place for another f-divergence."""
SORTED = ("aot", "aot_unpaired")
"""Losses that sort the pairs of a micro-batch."""
SMOOTHED = ("sigmoid", "sigmoid_norm", "robust", "exo_pair", "aot", "aot_unpaired")
"""Losses that read the share of swapped pairs."""
DIVIDED = ("ipo", "sppo_hard")
"""Losses that divide by `dpo.beta`."""

trainer = key("trainer.name")
here = trainer == "dpo"
tiny = key("model.source") == "tiny"
PAPER = "https://arxiv.org/abs/2305.18290"

loss = Enum("dpo.loss", (*LOSSES, "mixture"), doc="how a pair becomes a loss; `mixture` sums several (`dpo.mixture`)")
mixture = Setting(
    "dpo.mixture", dict, default=None, nullable=True, doc="weights of a mixture, as in {sigmoid: 1.0, sft: 0.2}"
)
beta = Setting("dpo.beta", float, default=0.1, minimum=0.0, doc="how strongly the policy is tied to the reference")
smoothing = Setting(
    "dpo.label_smoothing", float, default=0.0, minimum=0.0, maximum=1.0, doc="share of pairs assumed to be swapped"
)
divergence = Enum(
    "dpo.f_divergence",
    ("reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"),
    doc="the divergence that ties the policy to the reference",
)
alpha = Setting("dpo.f_alpha", float, default=0.5, doc="coefficient of the alpha divergence")
ld_alpha = Setting(
    "dpo.ld_alpha", float, default=None, nullable=True, minimum=0.0, maximum=1.0,
    doc="weight of the tokens beyond the shorter completion's length; null counts all alike",
)  # fmt: skip
tau = Setting("dpo.discopop_tau", float, default=0.05, minimum=1e-3, doc="temperature of the DiscoPOP loss")
weighting = Bool("dpo.weighting", doc="weigh each pair by its likelihood under the policy (WPO)")
dropout = Bool("dpo.disable_dropout", doc="switch dropout off in policy and reference")
watching = Setting(
    "dpo.watch_tokens", bool, default=False, free=True,
    doc="log entropy and mean logits of completions too, for one more product of hidden states and head",
)  # fmt: skip

REMOVED = "filter or pre-truncate the data set instead; `truncation.max_length` bounds prompt and completion together"


def _mixture_given(values: Mapping[str, Any]) -> str | None:
    weights = values["dpo.mixture"]
    if not weights:
        return "`dpo.loss=mixture` needs weights: add for example `dpo.mixture={sigmoid: 1.0, sft: 0.2}`"
    unknown = [name for name in weights if name not in LOSSES]
    if unknown:
        return f"`{unknown[0]}` is not a loss that can be mixed: {', '.join(LOSSES)}"
    wrong = [
        name for name, weight in weights.items() if isinstance(weight, bool) or not isinstance(weight, int | float)
    ]
    if wrong:
        return f"the weight of `{wrong[0]}` is not a number"
    none = next((name for name, weight in weights.items() if not 0 < weight < math.inf), None)
    return None if none is None else f"the weight of `{none}` is {weights[none]}, and each must be above 0"


def _mixture_shares(values: Mapping[str, Any]) -> str | None:
    mixed, share = values["dpo.mixture"] or {}, values["dpo.label_smoothing"]
    if "exo_pair" in mixed and share == 0:
        return (
            "`exo_pair` is mixed in, which takes the logarithm of `dpo.label_smoothing`: set it above 0, to 0.001 say"
        )
    if "robust" in mixed and share >= 0.5:
        return f"`robust` is mixed in, which divides by 1 - 2 * `dpo.label_smoothing`, and that is {share}"
    return None


def _unmixed(values: Mapping[str, Any]) -> str | None:
    mixed = set(values["dpo.mixture"] or {})
    readers = {
        "dpo.discopop_tau": (tau.default, {"discopop"}), "dpo.label_smoothing": (smoothing.default, set(SMOOTHED)),
        "dpo.f_divergence": ("reverse_kl", set(LOSSES) - set(NO_DIVERGENCE)),
    }  # fmt: skip
    for name, (usual, losses) in readers.items():
        if mixed and mixed <= set(LOSSES) and values[name] != usual and not mixed & losses:
            return f"none of the mixed losses ({', '.join(sorted(mixed))}) reads `{name}`"
    return None


def _unsorted(values: Mapping[str, Any]) -> str | None:
    mixed = [name for name in values["dpo.mixture"] or {} if name in SORTED]
    return f"`{mixed[0]}` is mixed in, which sorts the pairs" if mixed else None


def _divisor(values: Mapping[str, Any]) -> str | None:
    used = [values["dpo.loss"], *(values["dpo.mixture"] or {})]
    divided = next((name for name in used if name in DIVIDED), None)
    if divided is None or values["dpo.beta"] > 0:
        return None
    return f"`dpo.beta` is 0, and the loss `{divided}` divides by it"


def _robust_share(values: Mapping[str, Any]) -> str | None:
    share = values["dpo.label_smoothing"]
    return (
        None
        if share < 0.5
        else f"`dpo.label_smoothing={share}` is not below 0.5: the robust loss divides by 1 - 2 of it"
    )


def _exo_share(values: Mapping[str, Any]) -> str | None:
    share = values["dpo.label_smoothing"]
    return None if share > 0 else "`dpo.label_smoothing` must be above 0: the loss takes its logarithm"


plugin = Plugin(
    name="dpo",
    doc="preference optimisation on pairs of completions",
    options=[loss, mixture, beta, smoothing, divergence, alpha, ld_alpha, tau, weighting, dropout, watching],
    rules=[
        *dropout_rules(dropout, True, because="policy and reference would differ by chance with it"),
        Default(loss, "sigmoid", when=here, id="dpo.loss.default", because="it is the loss of the DPO paper", ref=PAPER),
        Default(
            divergence, "reverse_kl", when=here, id="dpo.f_divergence.default",
            because="the DPO paper derives its loss from the reverse KL divergence", ref=PAPER,
        ),
        Default(weighting, False, when=here, id="dpo.weighting.default", because="every pair counts the same"),
        Default(
            smoothing, 0.001, when=here & (loss == "exo_pair"), id="dpo.label_smoothing.exo_pair",
            because="the EXO loss is undefined without smoothing, and its paper recommends 0.001",
            ref="https://arxiv.org/abs/2402.00856",
        ),
        Default(
            key("run.learning_rate"), 1e-6, when=here, id="dpo.run.learning_rate",
            because="a policy that starts from its reference is moved in small steps",
        ),
        Default(
            key("run.learning_rate"), 1e-3, when=here & tiny, id="dpo.run.learning_rate.tiny",
            because="a small model that starts from noise wants larger steps than one that was trained before",
        ),
        Forbid(
            here & loss.isin(*NO_DIVERGENCE) & (divergence != "reverse_kl"), id="dpo.f_divergence.unused",
            because="this loss is defined without an f-divergence and would not read it",
            suggest=["dpo.f_divergence=reverse_kl", "dpo.loss=sigmoid"],
        ),
        Forbid(
            here & weighting.on & loss.isin(*SORTED), id="dpo.weighting.aot",
            because="AOT sorts the log-ratios of a batch, so a weight for each pair has nothing to weigh",
            suggest=["dpo.weighting=false", "dpo.loss=sigmoid"],
        ),
        Ignored(
            alpha, when=here & (divergence != "alpha_divergence"), id="dpo.f_alpha.unused",
            because="only `dpo.f_divergence=alpha_divergence` has a coefficient",
        ),
        Ignored(
            tau, when=here & ~loss.isin("discopop", "mixture"), id="dpo.discopop_tau.unused",
            because="only the DiscoPOP loss has a temperature",
        ),
        Ignored(
            mixture, when=here & (loss != "mixture"), id="dpo.mixture.unused",
            because="weights are read by `dpo.loss=mixture` alone",
        ),
        Check(
            [mixture], _mixture_given, when=here & (loss == "mixture"), id="dpo.mixture.weights",
            because="a mixture is made of named losses and their weights",
        ),
        Check(
            [mixture, smoothing], _mixture_shares, when=here & (loss == "mixture"), id="dpo.mixture.label_smoothing",
            because="mixed losses share one `dpo.label_smoothing`",
        ),
        Check(
            [mixture, smoothing, tau, divergence], _unmixed, when=here & (loss == "mixture"), id="dpo.mixture.unread",
            because="an option counts only where a loss reads it",
        ),
        Check(
            [mixture], _unsorted, when=here & weighting.on & (loss == "mixture"), id="dpo.weighting.mixture",
            because="AOT sorts the log-ratios of a batch, so a weight for each pair has nothing to weigh",
        ),
        Check(
            ["dpo.loss", mixture, beta], _divisor, when=here, id="dpo.beta.positive",
            because="a strength of nothing has no inverse",
        ),
        Ignored(
            smoothing, when=here & ~loss.isin(*SMOOTHED, "mixture"), except_values=(0.0,), id="dpo.label_smoothing.unused",
            because="this loss does not read it",
        ),
        Check(
            [smoothing], _robust_share, when=here & (loss == "robust"), id="dpo.label_smoothing.robust",
            because="the robust loss divides by 1 - 2 * label_smoothing", ref="https://arxiv.org/abs/2403.00409",
        ),
        Check(
            [smoothing], _exo_share, when=here & (loss == "exo_pair"), id="dpo.label_smoothing.positive",
            because="the EXO loss takes the logarithm of the smoothing", ref="https://arxiv.org/abs/2402.00856",
        ),
        RemovedKey(
            "dpo.max_prompt_length", advice=REMOVED, id="dpo.max_prompt_length.removed",
            because="a limit on the prompt alone cut prompts in the middle",
        ),
        RemovedKey(
            "dpo.max_completion_length", advice=REMOVED, id="dpo.max_completion_length.removed",
            because="a limit on the completion alone hid what was lost",
        ),
        *only_when(
            here, loss, mixture, beta, smoothing, divergence, alpha, ld_alpha, tau, weighting, dropout, watching,
            because="only `trainer=dpo` reads it",
        ),
    ],
    provides={"trainer.name": ("dpo",)},
    hooks="memcfg_dpo.hooks",
    active=here,
)  # fmt: skip
