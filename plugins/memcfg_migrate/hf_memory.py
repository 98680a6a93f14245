"""Arguments of `TrainingArguments` about memory: precision, checkpointing, and how a run is spread over processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from memcfg_migrate.outcome import Outcome
from memcfg_migrate.reading import first_object
from memcfg_migrate.said import Said

DTYPES: Final = ("auto", "bfloat16", "float16", "float32")
STAGES: Final = {2: "zero2", 3: "zero3"}


def checkpointing(said: Said, out: Outcome, selective: bool) -> None:
    """`selective`: whether this trainer reads `selective` among the keywords; others fail at the first step."""
    names = ("activation_checkpointing", "gradient_checkpointing")
    name = next((n for n in names if n in said), "gradient_checkpointing")
    on = bool(said[name])
    usual = bool(said.args["gradient_checkpointing"].default)
    [said[n] for n in names]  # both are told by one
    kwargs = dict(said["gradient_checkpointing_kwargs"] or said["activation_checkpointing_kwargs"] or {})
    given = next((n for n in ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs") if n in said), "")
    chosen = kwargs.pop("selective", False)
    if chosen and not selective:
        out.remark(
            "there", said.text(given), "this trainer hands `selective` on to torch, which fails at the first step"
        )
    mode = "none" if not on else "selective" if chosen else "full"
    out.carry("checkpointing.mode", mode, said.text(given if chosen else name), on != usual or bool(chosen))
    if name in said and on == usual:
        out.remark("same", said.text(name), "that is the default")
    if "use_reentrant" in kwargs:
        reentrant = kwargs.pop("use_reentrant")
        if on:
            out.carry("checkpointing.reentrant", bool(reentrant), said.text(given))
    for key, value in kwargs.items():
        out.remark("other", f"`{given}.{key}={value}`", "checkpointing has no such setting here", said.where(given))
    if given and not on:
        out.remark("there", said.text(given), "not read, because checkpointing is off")


def precision(said: Said, out: Outcome, dtype: str | None, text: str) -> None:
    """`dtype` of the weights and where it was said; the other program computes in another one under autocast."""
    weights = (dtype or "float32").removeprefix("torch.")
    if weights not in DTYPES:
        out.remark("learning", text, "weights are auto, bfloat16, float16 or float32 (`model.dtype`)")
        return
    out.carry("model.dtype", weights, text, dtype is not None)
    half = "fp16" if said["fp16"] else "bf16"
    computes = said["bf16"] if half == "bf16" else True
    if weights == "float32" and computes is not False:
        kind = "float16" if half == "fp16" else "bfloat16"
        out.remark(
            "differs", said.text(half) if half in said else f"`{half}` (on by default)",
            f"it keeps float32 weights and computes in {kind} under autocast; memcfg computes in the dtype of the weights: "
            "float32 is exact and slower, `model.dtype=bfloat16 optimizer=adamw_bf16` halves both",
        )  # fmt: skip


def spread(said: Said, out: Outcome) -> None:
    """FSDP and DeepSpeed."""
    if said["deepspeed"]:
        _deepspeed(said, out)
    elif said["fsdp"]:
        out.carry("distributed.strategy", "fsdp2", said.text("fsdp"))
        out.remark("differs", said.text("fsdp"), "layers are wrapped and sharded by memcfg; start it under `torchrun`")
    if "fsdp_config" in said:
        out.remark("other", said.text("fsdp_config"), "FSDP2 has no settings of its own here")
    elif said["fsdp_config"]:
        said["fsdp_config"]


def _deepspeed(said: Said, out: Outcome) -> None:
    given = said["deepspeed"]
    config = given if isinstance(given, Mapping) else first_object(Path(str(given)), Path(said.source.path).parent)
    if config is None:
        text = "the file is not there or is no JSON, so its stage is not known: append `distributed=zero2` or `zero3`"
        out.remark("open", said.text("deepspeed"), text)
        return
    zero = config.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, Mapping) else 0
    if stage in STAGES:
        out.carry("distributed.strategy", STAGES[stage], f"stage {stage} of {said.text('deepspeed')}")
    else:
        out.remark(
            "other", said.text("deepspeed"), f"stage {stage} shards nothing that memcfg would not: `distributed=ddp`"
        )
    for key in sorted(set(zero) - {"stage"}) if isinstance(zero, Mapping) else ():
        if key.startswith("offload_"):
            text = (
                "parameters and states are not moved to the host by ZeRO; `optimizer=adamw_offload` does it without it"
            )
            out.remark("other", f"`zero_optimization.{key}`", text, said.where("deepspeed"))
    out.remark("differs", said.text("deepspeed"), "the rest of the file is made by memcfg from the plan")
