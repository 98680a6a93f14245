"""Predictions with what surrounds them: what was predicted before, and plans that cannot be predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcfg.errors import Problem, RequestError
from memcfg.planner import cache
from memcfg.planner.batches import Lengths
from memcfg.planner.hosts import machine_of
from memcfg.planner.machine import Machine
from memcfg.planner.prediction import Prediction

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry


def predict(
    plan: Plan, registry: Registry, *, machine: Machine | None = None, lengths: Lengths | None = None,
    fresh: bool = False,
) -> Prediction:  # fmt: skip
    """The prediction for a plan: kept from before, or simulated now (`fresh`: in any case).

    Raises `RequestError` for a plan with facts that are still unknown, and what `simulate` raises."""
    refuse_pending(plan)
    machine = machine or machine_of(plan)
    name = cache.key(plan, machine, lengths)
    found = None if fresh else cache.kept(name)
    if found is None:
        hooks = registry.hooks(plan)
        from memcfg.planner.simulate import simulate

        found = simulate(plan, hooks, machine=machine, lengths=lengths)
        cache.keep(name, found)
    return found


def refuse_pending(plan: Plan) -> None:
    """Raise `RequestError` for facts that are not known: what they decide could not be simulated."""
    if plan.pending:
        raise RequestError(*(_pending(item.fact, len(item.rules)) for item in plan.pending))


def _pending(fact: str, rules: int) -> Problem:
    text = f"not known yet, and {rules} {'rule waits' if rules == 1 else 'rules wait'} for it"
    return Problem(text, key=fact, fix=f"state it, `assume.{fact}=...`, or give what it is read from")
