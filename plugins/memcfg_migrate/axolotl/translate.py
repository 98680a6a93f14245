"""From what an axolotl config says to overrides."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from memcfg import Problem, RequestError
from memcfg_migrate.axolotl.keys import KEYS
from memcfg_migrate.axolotl.memory import carry_adapter, carry_kernels, carry_memory
from memcfg_migrate.axolotl.rows import carry_data
from memcfg_migrate.axolotl.training import carry_length, carry_optimizer, carry_times, carry_trackers
from memcfg_migrate.becomes import rest, translate
from memcfg_migrate.loading import weights
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Said, Source
from memcfg_migrate.schedule import Length

TRAINERS: Final = {None: "sft", "dpo": "dpo", "ipo": "dpo", "kto": "kto", "grpo": "grpo"}


def outcome(source: Source, length: Length) -> Outcome:
    """What becomes of it. Raises `RequestError` for an objective that memcfg has no trainer for."""
    said, out = Said(source, KEYS), Outcome("axolotl", source.path)
    out.trainer = _trainer(said)
    out.carry("trainer.name", out.trainer, said.text("reward_model" if out.trainer == "reward" else "rl"), given=True)
    counted = carry_data(said, out, Path(source.path).parent)
    rows = counted if length.rows is None and counted is not None and not said["sample_packing"] else length
    _model(said, out)
    _length(said, out)
    found = carry_length(said, out, Length(rows.rows, length.processes, rows.rows_from))
    carry_optimizer(said, out)
    carry_times(said, out, found)
    carry_trackers(said, out)
    carry_adapter(said, out)
    carry_memory(said, out)
    carry_kernels(said, out)
    _objective(said, out)
    translate(said, out)
    rest(said, out)
    return out


def _trainer(said: Said) -> str:
    rl = said["rl"]
    if said["reward_model"]:
        return "reward"
    if rl not in TRAINERS:
        known = ", ".join(f"`{name}`" for name in TRAINERS if name)
        raise RequestError(
            Problem(f"`{rl}` has no trainer here ({said.where('rl')})", key="rl", fix=f"known are {known}")
        )
    return TRAINERS[rl]


def _model(said: Said, out: Outcome) -> None:
    weights(said, out, "base_model", "trust_remote_code", "`base_model`")
    _dtype(said, out)


def _dtype(said: Said, out: Outcome) -> None:
    order = {
        "bf16": "bfloat16", "bfloat16": "bfloat16", "load_in_8bit": "float16", "fp16": "float16", "float16": "float16",
        "float32": "float32",
    }  # fmt: skip
    chosen = next((name for name in order if said[name]), "float32")
    dtype = order[chosen]
    out.carry("model.dtype", dtype, said.text(chosen))
    out.remark(
        "differs", said.text(chosen), f"weights are kept in {dtype} and computed in under autocast; here without it"
    )
    for name in order:
        if name in said and name not in (chosen, "load_in_8bit"):
            out.remark("there", said.text(name), f"not read, because {said.text(chosen)}" if said[name] else "off")


def _length(said: Said, out: Outcome) -> None:
    out.carry("truncation.max_length", said["sequence_len"], said.text("sequence_len"))
    strategy = said["excess_length_strategy"] or "drop"
    if strategy == "truncate":
        out.remark("same", said.text("excess_length_strategy"), "longer rows are cut")
    elif strategy == "drop":
        text = "longer rows are dropped there; here they are cut (`truncation.mode`), and the ledger counts it"
        out.remark("differs", said.text("excess_length_strategy"), text)
    else:
        out.remark("learning", said.text("excess_length_strategy"), "longer rows are cut, and counted in the ledger")


def _objective(said: Said, out: Outcome) -> None:
    trainer, inputs = out.trainer, said["train_on_inputs"]
    beta = next((n for n in ("rl_beta", "dpo_beta") if said[n] is not None), None)
    owned = {
        "dpo_use_weighting": ("dpo", "dpo.weighting"), "dpo_label_smoothing": ("dpo", "dpo.label_smoothing"),
        "kto_desirable_weight": ("kto", "kto.desirable_weight"), "kto_undesirable_weight": ("kto", "kto.undesirable_weight"),
        "center_rewards_coefficient": ("reward", "reward.center_coefficient"),
    }  # fmt: skip
    for name, (owner, key) in owned.items():
        if said[name] is not None and trainer == owner:
            out.carry(key, said[name], said.text(name))
        elif said[name] is not None:
            out.remark("there", said.text(name), f"not read by `{trainer}`")
    if said["rl"] == "ipo":
        out.carry("dpo.loss", "ipo", said.text("rl"))
    if beta is not None and trainer in ("dpo", "kto", "grpo"):
        out.carry(f"{trainer}.beta", said[beta], said.text(beta))
    elif beta is not None:
        out.remark("there", said.text(beta), f"not read by `{trainer}`")
    if said["dpo_norm_loss"]:
        out.remark("learning", said.text("dpo_norm_loss"), "`dpo.loss=sigmoid_norm` divides by lengths")
    if said["precompute_ref_log_probs"]:
        out.carry("reference.mode", "precompute", said.text("precompute_ref_log_probs"))
    if trainer == "sft" and inputs:
        out.carry("sft.completion_only", False, said.text("train_on_inputs"))
    elif inputs:
        out.remark("there", said.text("train_on_inputs"), f"not read by `{trainer}`")
    _online(said, out)


ONLINE: Final = {
    "beta": "grpo.beta", "num_generations": "grpo.num_generations", "max_completion_length": "generation.max_new_tokens",
    "temperature": "generation.temperature", "top_p": "generation.top_p", "top_k": "generation.top_k",
    "reward_weights": "rewards.weights", "loss_type": "grpo.loss", "epsilon": "grpo.epsilon",
    "epsilon_high": "grpo.epsilon_high", "num_iterations": "grpo.num_iterations",
}  # fmt: skip


def _online(said: Said, out: Outcome) -> None:
    """The mapping `trl`, which only GRPO reads."""
    given: dict[str, Any] = said["trl"] or {}
    for name, value in given.items():
        text = f"`trl.{name}={value}` ({said.where('trl')})"
        if out.trainer == "grpo" and name in ONLINE:
            out.carry(ONLINE[name], value, text)
        elif out.trainer == "grpo" and name == "use_vllm":
            out.carry("generation.backend", "vllm" if value else "transformers", text)
        elif out.trainer == "grpo":
            out.remark("learning", text, "see the options of `grpo`, `generation` and `vllm`")
        else:
            out.remark("there", text, f"not read by `{out.trainer}`")
    if out.trainer == "grpo":
        out.remark(
            "open", "the rewards", "name them with `rewards.functions=[module:function] rewards.trust_code=true`"
        )
