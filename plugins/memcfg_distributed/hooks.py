"""Implementations of the distributed plugin's hooks."""

from __future__ import annotations

from typing import Any

from memcfg import Plan, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.engine.spread import Spread


@hookimpl
def memcfg_spread(plan: Plan) -> Spread:
    strategy = plan["distributed.strategy"]
    if strategy == "ddp":
        from memcfg_distributed.replicas import Replicas

        return Replicas(plan)
    if strategy == "fsdp2":
        from memcfg_distributed.shards import Shards

        return Shards(plan)
    from memcfg_distributed.zero import Zero

    return Zero(plan)


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """What wraps the live model, read off its classes and parameters."""
    if run.spread is not None and run.wrapped is not None:
        found.append(Effective("distributed.strategy", *run.spread.in_force(run.wrapped)))
    return found
