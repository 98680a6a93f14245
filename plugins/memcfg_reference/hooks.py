"""Gives the reference of `reference.mode`."""

from __future__ import annotations

from typing import Any

import torch

from memcfg import Plan, hookimpl
from memcfg.batch import Load, Reference
from memcfg.engine.evidence import Effective
from memcfg_reference.references import AdapterOff, Live, Precomputed, Sync


@hookimpl
def memcfg_reference(plan: Plan, model: torch.nn.Module, load: Load) -> Reference:
    path = plan.get("reference.path")
    other = load(path, "reference.path")[0] if path is not None else None
    if plan["reference.mode"] == "adapter":
        return AdapterOff()
    if plan["reference.mode"] == "precompute":
        return Precomputed(other, plan.get("reference.batch_size") or plan["run.batch_size"])
    follows = plan.get("reference.sync") is True
    return Live.of(model, other, Sync(plan["reference.mixup"], plan["reference.sync_steps"]) if follows else None)


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The reference's kind, from what the objective was given."""
    reference = run.reference
    if reference is None:
        return found
    found = [*found, Effective("reference.mode", reference.mode, reference.describe(run))]
    if plan.get("reference.sync") is not None:
        sync = getattr(reference, "sync", None)
        how = "it stays" if sync is None else f"{sync.share:g} of the policy every {sync.steps} steps"
        found.append(Effective("reference.sync", sync is not None, how))
    return found
