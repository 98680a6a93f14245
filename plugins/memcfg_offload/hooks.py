"""Implementations of the offload plugin's hooks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from memcfg import Plan, hookimpl
from memcfg.engine.evidence import Effective
from memcfg_offload.context import Offload
from memcfg_offload.foresight import foreseen, refuse_too_little
from memcfg_offload.host import Stack, amount, files, host, memory, refuse_beyond_disk
from memcfg_offload.mover import Mover
from memcfg_offload.phases import ASIDE, LaidAside
from memcfg_offload.transfer import Direct, Storageless, Streamed, Transfer


@hookimpl
def memcfg_step_context(
    plan: Plan, model: torch.nn.Module, contexts: list[AbstractContextManager[Any]]
) -> list[AbstractContextManager[Any]]:
    """The context that moves activations while it is entered."""
    if plan["offload.activations"] == "none":
        return contexts
    device = next(model.parameters()).device
    made = Mover(
        _stack(plan, device), _transfer(plan, device),
        device=device.type, min_bytes=plan["offload.min_bytes"], limit=plan["offload.stash"],
    )  # fmt: skip
    inputs_only = plan["offload.activations"] == "checkpoint_inputs"
    return [*contexts, Offload(model, made, inputs_only=inputs_only)]


@hookimpl(produces="room")
def memcfg_sampling_context(
    plan: Plan, model: torch.nn.Module, optimizer: Any, contexts: list[AbstractContextManager[Any]]
) -> list[AbstractContextManager[Any]]:
    """What lays the optimizer's states and the gradients aside, before anything else takes memory for sampling."""
    if plan.get("offload.phases") is not True:
        return contexts
    pin = plan["offload.pin"] and plan.device == "cuda"
    if plan.get("distributed.strategy") in ("zero2", "zero3"):
        from memcfg_offload.engines import EngineAside

        return [*contexts, EngineAside.of(model, pin=pin)]
    return [*contexts, LaidAside.of(optimizer, pin=pin)]


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """What has been moved since the run was built, and how much of the host it takes."""
    found = [*found, *_phases(plan, run)]
    if plan["offload.activations"] == "none":
        return found
    context = next((c for c in run.contexts if isinstance(c, Offload)), None)
    mover = context.mover if context is not None else None
    if context is None or mover is None or not mover.tensors:
        small = f"those of less than {plan['offload.min_bytes']:,} bytes stay (`offload.min_bytes`)"
        return [*found, Effective("offload.activations", "none", f"no saved tensor has been moved; {small}")]
    kind = "checkpoint_inputs" if context.inputs_only else plan["offload.activations"]
    place = "disk" if kind == "disk" else "host"
    text = (
        f"{mover.tensors} tensors, {amount(mover.bytes)} moved; {amount(mover.stack.peak)} at once, in "
        f"{amount(mover.stack.capacity)} of the {place}{_ahead(plan, run, context)}"
    )
    found = [*found, Effective("offload.activations", kind, text)]
    if plan.device == "cuda":
        how = f"copies are made by `{type(mover.transfer).__name__}`"
        found.append(Effective("offload.streams", isinstance(mover.transfer, Streamed), how))
    return found


def _ahead(plan: Plan, run: Any, context: Offload) -> str:
    """What the longest rows will take. Raises `RunError` where there is no room for that."""
    size = foreseen(plan, run, context)
    if size is None:
        return ""
    refuse_too_little(size, context)
    left = "" if plan["offload.activations"] == "disk" else f", of {amount(host().free)} that are free"
    return f"; the longest rows will take {amount(size)} at once{left}"


def _phases(plan: Plan, run: Any) -> list[Effective]:
    if plan.get("offload.phases") is None:
        return []
    aside = getattr(run.optimizer, ASIDE, None)
    rounds, size = (aside.rounds, aside.bytes) if aside is not None else (0, 0)
    size_text = amount(size) if size else "nothing yet, as there are no states before the first update,"
    text = f"{size_text} on the host during {rounds} round(s) of sampling"
    return [Effective("offload.phases", aside is not None and rounds > 0 and aside.complete, text)]


def _stack(plan: Plan, device: torch.device) -> Stack:
    if device.type == "meta":
        return Stack(lambda size: torch.empty(0, dtype=torch.uint8).expand(0), chunk=1 << 50)
    if plan["offload.activations"] == "disk":
        return Stack(files(plan["offload.path"]), refuse=partial(refuse_beyond_disk, plan["offload.path"]))
    return Stack(memory(pin=plan["offload.pin"] and device.type == "cuda"))


def _transfer(plan: Plan, device: torch.device) -> Transfer:
    if device.type == "meta":
        return Storageless(plan["offload.streams"])
    return Streamed(device) if plan["offload.streams"] and device.type == "cuda" else Direct()
