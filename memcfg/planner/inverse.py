"""The questions from the other end: how long rows, how many rows, how small a card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from memcfg.core.cards import CARDS
from memcfg.planner.machine import Machine, named
from memcfg.planner.outline import outline
from memcfg.planner.predict import predict
from memcfg.planner.prediction import MARGIN
from memcfg.planner.sets import Set, resolved

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry
    from memcfg.solver.request import Request

LENGTH: Final = "truncation.max_length"
ROWS: Final = "run.batch_size"
STEP: Final = {LENGTH: 256, ROWS: 1}
"""In what steps the answer is sought."""
FURTHEST: Final = {LENGTH: 1 << 20, ROWS: 1 << 12}
CLOSE: Final = 16
"""The answer is sought to a sixteenth of itself, or to one step."""


@dataclass(frozen=True)
class Inverse:
    """Answers for one technique set; None where there is none. `card` is the smallest known one."""

    longest: int | None
    most_rows: int | None
    card: str | None


def answers(request: Request, registry: Registry, machine: Machine, budget: int, chosen: Set) -> Inverse:
    """How far the set `chosen` reaches within the budget."""
    ask = _Asker(request, registry, machine, chosen.choices)
    return Inverse(
        ask.furthest(LENGTH, budget), ask.furthest(ROWS, budget), smallest_card(request, registry, machine, chosen)
    )


@dataclass(frozen=True)
class _Asker:
    request: Request
    registry: Registry
    machine: Machine
    choices: Mapping[str, Any]

    def furthest(self, key: str, budget: int) -> int | None:
        """The largest value of an option with which the step still fits, rounded down to what was tried."""
        fits: Callable[[int], bool] = lambda value: self._fits(key, value, budget)  # noqa: E731
        step, value = STEP[key], STEP[key]
        if not fits(value):
            return None
        while value < FURTHEST[key] and fits(2 * value):
            value *= 2
        low, high = value, 2 * value
        while high - low > max(step, low // CLOSE):
            middle = (low + high) // 2 // step * step
            low, high = (middle, high) if fits(middle) else (low, middle)
        return self._proven(key, low, budget)

    def _proven(self, key: str, value: int, budget: int) -> int | None:
        """The value, or the nearest smaller one that the whole simulation says fits."""
        for _ in range(CLOSE):
            plan = self._plan(key, value)
            if plan is not None and predict(plan, self.registry, machine=self.machine).verdict(budget) == "fits":
                return value
            value -= max(STEP[key], value // CLOSE // STEP[key] * STEP[key])
            if value < STEP[key]:
                return None
        return None

    def _plan(self, key: str, value: int) -> Plan | None:
        return resolved(self.request, {**self.choices, key: value}, self.registry)

    def _fits(self, key: str, value: int, budget: int) -> bool:
        plan = self._plan(key, value)
        if plan is None:
            return False
        needed = outline(plan, self.registry.hooks(plan), self.machine).needed
        return needed <= budget * (1 - MARGIN)


def smallest_card(request: Request, registry: Registry, machine: Machine, chosen: Set) -> str | None:
    """The smallest known card on which the set fits, with the plan that it would get there."""
    if machine.kind != "cuda":
        return None
    for card, known in sorted(CARDS.items(), key=lambda item: (item[1].memory, item[0])):
        facts = {**request.facts, "device.type": "cuda", "device.capability": known.capability}
        plan: Plan | None = resolved(replace(request, facts=facts), chosen.choices, registry)
        there = named(card)
        if plan is None or outline(plan, registry.hooks(plan), there).needed > known.memory * (1 + MARGIN):
            continue
        if predict(plan, registry, machine=there).verdict(known.memory) == "fits":
            return card
    return None
