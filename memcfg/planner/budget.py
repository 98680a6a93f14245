"""How much memory a run may use, and what is said of a prediction in its light."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memcfg.planner.machine import Machine
from memcfg.planner.prediction import Prediction, Verdict

if TYPE_CHECKING:
    from memcfg.plan import Plan

EXIT: dict[Verdict, int] = {"fits": 0, "too large": 1, "close": 2}


@dataclass(frozen=True)
class Budget:
    """`bytes` of a card's memory, all of it counted: what lies outside the allocator as well. `source` says whose they
    are: the request's, or the card's own."""

    bytes: int
    source: Literal["request", "card"]


def budget_of(plan: Plan, machine: Machine) -> Budget | None:
    """The plan's budget, else the card's memory; None where neither is known."""
    stated = plan.get("budget.bytes")
    if stated is not None:
        return Budget(stated, "request")
    return None if machine.memory is None else Budget(machine.memory, "card")


def short_of_weights(prediction: Prediction, budget: Budget) -> int | None:
    """What the weights need with what lies outside the allocator, where even that is more than the budget."""
    weights = prediction.kinds.get("weights", 0) + prediction.outside_bytes
    return weights if weights > budget.bytes else None
