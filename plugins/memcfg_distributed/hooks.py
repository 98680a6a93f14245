"""Implementations of the distributed plugin's hooks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from memcfg import Plan, Problem, RequestError, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.engine.spread import Spread
from memcfg.simulated import RANK_VIEW, RankView
from memcfg_distributed.sampling import GATHERED, Gathered

FSDP2_UNFORESEEN, DDP_UNFORESEEN = 0.28, 0.07
"""How much more was reserved than predicted at the most, by one rank on one NVIDIA H200 with room to spare: gathering and
reducing have streams of their own."""


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


@hookimpl(consumes="room")
def memcfg_sampling_context(
    plan: Plan, model: torch.nn.Module, contexts: list[AbstractContextManager[Any]]
) -> list[AbstractContextManager[Any]]:
    """All weights in place while a ZeRO-3 model samples, once there is room for them."""
    return [*contexts, Gathered.of(model)] if _gathers(plan) else contexts


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """One process's view. Raises `RequestError` for DeepSpeed, whose buffers are not simulated."""
    strategy, world = plan["distributed.strategy"], plan.get("world.size") or 1
    if strategy in ("zero2", "zero3"):
        text = "what DeepSpeed keeps in its own buffers is not simulated, so this plan's memory cannot be predicted"
        raise RequestError(
            Problem(text, key="distributed.strategy", fix="predict `distributed.strategy=fsdp2` instead")
        )
    if strategy == "ddp":
        return stands_in | {RANK_VIEW: RankView(world, unforeseen=DDP_UNFORESEEN)}
    from memcfg_distributed.shards import units_of

    return stands_in | {RANK_VIEW: RankView(world, units_of, FSDP2_UNFORESEEN)}


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """What wraps the live model, read off its classes and parameters; what was gathered for sampling."""
    if plan["distributed.strategy"] == "zero3" and plan.get("zero3.gather_for_generation") is not None:
        made = getattr(run.wrapped, GATHERED, None)
        rounds = made.rounds if made is not None else 0
        effective = made is not None and rounds > 0 and made.whole
        found = [*found, Effective("zero3.gather_for_generation", effective, f"whole weights in {rounds} round(s)")]
    if run.spread is not None and run.wrapped is not None:
        found.append(Effective("distributed.strategy", *run.spread.in_force(run.wrapped)))
    return found


def _gathers(plan: Plan) -> bool:
    return plan["distributed.strategy"] == "zero3" and plan.get("zero3.gather_for_generation") is True
