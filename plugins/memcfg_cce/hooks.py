"""Implementations of the plugin's hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memcfg import hookimpl
from memcfg.engine.evidence import Effective
from memcfg.head import output_layer, prove, transform_of
from memcfg_cce.head import ForeignHead, check

if TYPE_CHECKING:
    import torch

    from memcfg import Plan
    from memcfg.batch import Head


@hookimpl
def memcfg_head(plan: Plan, model: torch.nn.Module) -> Head:
    transform, kernel = transform_of(model), plan["loss.kernel"]
    check(output_layer(model), transform, kernel)
    prove(model, transform)
    return ForeignHead(transform, kernel)


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """What the head is."""
    kernel = getattr(run.head, "kernel", None)
    return [*found, Effective("loss.kernel", kernel, f"the head is {run.head.describe()}")]
