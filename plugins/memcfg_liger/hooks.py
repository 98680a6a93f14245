"""Liger's kernels in the model's layers and in its head."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from memcfg import hookimpl
from memcfg.engine.evidence import Effective
from memcfg.engine.forward import causal_model
from memcfg.head import prove, transform_of
from memcfg_liger.head import LigerHead
from memcfg_liger.layers import LigerLayers, patch_layers

if TYPE_CHECKING:
    import torch

    from memcfg import Plan
    from memcfg.batch import Head

_PATCHED = "_memcfg_liger"


@hookimpl(consumes=("quantized", "adapter"), produces="layers")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model with Liger's kernels in its layers."""
    if plan["liger.layers"]:
        # Beside the modules, not among them.
        causal_model(model).__dict__[_PATCHED] = patch_layers(model)
    return model


@hookimpl
def memcfg_step_context(
    plan: Plan, model: torch.nn.Module, contexts: list[AbstractContextManager[Any]]
) -> list[AbstractContextManager[Any]]:
    """Liger's functions are in place only while a step of this model runs."""
    patched = _patched(model)
    return contexts if patched is None else [*contexts, patched]


@hookimpl
def memcfg_head(plan: Plan, model: torch.nn.Module) -> Head:
    transform = transform_of(model)
    prove(model, transform)
    return LigerHead(transform, scaled=plan.get("loss.type") == "dft")


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """Kernels that are not launched, and a loss that goes its way on a GPU."""
    from memcfg_liger.simulation import stand_ins

    return {**stands_in, **stand_ins(int(plan.get("device.capability") or 0))}


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """How many modules were patched, and what the head is."""
    patched = _patched(run.model)
    fused = isinstance(run.head, LigerHead)
    what = ([] if patched is None else [patched.describe()]) + ([run.head.describe()] if fused else [])
    found = [*found, Effective("liger.enabled", bool(what), "; ".join(what) or "nothing of Liger's is in the model")]
    if plan["loss.kernel"] == "liger":
        found.append(Effective("loss.kernel", getattr(run.head, "kernel", None), f"the head is {run.head.describe()}"))
    return found


def _patched(model: torch.nn.Module) -> LigerLayers | None:
    return getattr(causal_model(model), _PATCHED, None)
