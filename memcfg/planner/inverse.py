"""The questions from the other end: how long rows, how many rows, how small a card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from memcfg.core.cards import CARDS
from memcfg.engine.rounds import LONGEST
from memcfg.planner.cores import side_by_side
from memcfg.planner.machine import Machine, named
from memcfg.planner.online import PROMPT
from memcfg.planner.outline import outline
from memcfg.planner.predict import predict
from memcfg.planner.prediction import MARGIN, Prediction
from memcfg.planner.sets import Set, resolved

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry
    from memcfg.solver.request import Request

LENGTH: Final = "truncation.max_length"
SAMPLED: Final = "generation.max_new_tokens"
"""The length that a trainer has instead which samples and cuts nothing."""
ROWS: Final = "run.batch_size"
STEP: Final = {LENGTH: 256, SAMPLED: 64, ROWS: 1}
"""In what steps the answer is sought."""
HELD: Final = ("weights", "gradients", "optimizer")
"""Kinds of memory that are there whatever the rows are."""
FURTHEST: Final = {LENGTH: 1 << 20, SAMPLED: 1 << 20, ROWS: 1 << 12}
CLOSE: Final = 16
"""The answer is sought to a sixteenth of itself, or to one step."""
NEAR: Final = 0.98
"""A value that needs this share of the limit is as good as the answer."""
LESS: Final = 0.99
"""A value that turned out to need too much is followed by one that is at most this share of it."""
LEAP: Final = 16
"""How many times further than what is known the next try may lie."""
TRIES: Final = 10
OTHERWISE: Final = 1.3
"""A plan of another card may need less, but not by more than this."""


@dataclass(frozen=True)
class Inverse:
    """Answers for one technique set; None where there is none. `card` is the smallest known one; `length` the option that
    `longest` is a value of. `bound`: the largest value of it that the model has positions for; None where it states no end."""

    longest: int | None
    most_rows: int | None
    card: str | None
    length: str = LENGTH
    bound: int | None = None

    @property
    def at_the_end(self) -> bool:
        """Whether the model's positions end the longest length, not the memory."""
        return None not in (self.longest, self.bound) and self.longest + STEP[self.length] > self.bound  # type: ignore[operator]


def answers(request: Request, registry: Registry, machine: Machine, budget: int, chosen: Set) -> Inverse:
    """How far the set `chosen` reaches within the budget."""
    whole = predict(chosen.plan, registry, machine=machine)
    outlined = outline(chosen.plan, registry.hooks(chosen.plan), machine).needed
    limit, held = int(budget * (1 - MARGIN)), whole.outside_bytes + sum(whole.kinds.get(kind, 0) for kind in HELD)
    length = SAMPLED if chosen.plan.get(LENGTH) is None and SAMPLED in chosen.plan else LENGTH
    bound = _bound(chosen.plan, length, whole.positions)
    ask = _Asker(
        request, registry, machine, chosen, outlined, whole.sure_bytes, min(held, whole.sure_bytes), limit, bound
    )
    questions: list[Callable[[], Any]] = [
        partial(ask.furthest, length),
        partial(ask.furthest, ROWS),
        partial(smallest_card, request, registry, machine, chosen, whole, whole.needed_bytes / outlined),
    ]
    found = side_by_side(lambda question: question(), questions)
    longest, rows, card = (found[n] if n in found else question() for n, question in enumerate(questions))
    return Inverse(longest, rows, card, length, bound)


def _bound(plan: Plan, length: str, positions: int | None) -> int | None:
    """The largest length that a model of so many positions has room for: what is sampled follows a prompt."""
    if positions is None or length == LENGTH:
        return positions
    return max(1, positions - (plan.get(LONGEST) or PROMPT))


@dataclass(frozen=True)
class _Asker:
    """`outlined` and `needed` are what the chosen set needs by its outline and by its whole simulation, with what streams may
    hold besides: they say by how much outlines of it are wrong. `held` of it does not grow with rows and lengths. `bound`: the longest that the model has
    positions for."""

    request: Request
    registry: Registry
    machine: Machine
    chosen: Set
    outlined: int
    needed: int
    held: int
    limit: int
    bound: int | None

    def furthest(self, key: str) -> int | None:
        """The largest value of an option with which the step still fits, to a sixteenth of itself or one step.

        Memory is nearly a straight line over lengths and rows, so that a few outlines lead there."""
        own, step, end = self.chosen.plan[key], self._step(key), self._end(key)
        known: dict[int, float] = {own: self.needed} if own >= step else {}
        value = self._first(own, step, end) if known else step
        while value is not None and len(known) < TRIES:
            plan = self._plan(key, value)
            known[value] = inf if plan is None else self._outline(plan) * self.needed / self.outlined
            value = following(known, self.limit, step, end)
        fitting = [value for value, needed in known.items() if needed <= self.limit]
        best = min(max(fitting, default=0), end)
        if not fitting or (key != ROWS and best == end):
            return self._proven(key, best, step) if fitting else None
        return self._proven(key, best // step * step, step)

    def _end(self, key: str) -> int:
        """The furthest that is looked."""
        return FURTHEST[key] if key == ROWS or self.bound is None else min(FURTHEST[key], self.bound)

    def _first(self, own: int, step: int, furthest: int) -> int | None:
        """Where to look first, if all that is not held grew in proportion."""
        following_own = following({own: self.needed}, self.limit, step, furthest)
        grows = self.needed - self.held
        if following_own is None or following_own < own or grows <= 0:
            return following_own
        value = int(own * (self.limit - self.held) / grows)
        return min(max(value // step * step, own + step), LEAP * own, furthest)

    def _step(self, key: str) -> int:
        """Rows of a trainer that samples hold whole groups in multiples of what they are."""
        own: int = self.chosen.plan[key]
        return own if key == ROWS and SAMPLED in self.chosen.plan else STEP[key]

    def _proven(self, key: str, value: int, step: int) -> int | None:
        """The value, or the nearest smaller one of which the whole simulation has the verdict that it fits."""
        for _ in range(TRIES):
            plan = self._plan(key, value)
            needed = inf if plan is None else predict(plan, self.registry, machine=self.machine).sure_bytes
            if needed <= self.limit:
                return value
            value = self._smaller(key, value, needed) // step * step
            if value < step:
                return None
        return None

    def _smaller(self, key: str, value: int, needed: float) -> int:
        """Where to go from a value that needs too much: to where the line from the chosen set's own value crosses the limit, and not
        by the least that would change, as each step is a whole simulation."""
        own = self.chosen.plan[key]
        straight = own < value and self.needed < self.limit and needed != inf
        less = _crossing(own, self.needed, value, needed, self.limit) if straight else int(value * self.limit / needed)
        return min(less, int(value * LESS), value - 1)

    def _plan(self, key: str, value: int) -> Plan | None:
        return resolved(self.request, {**self.chosen.choices, key: value}, self.registry)

    def _outline(self, plan: Plan) -> int:
        return outline(plan, self.registry.hooks(plan), self.machine).needed


def following(known: Mapping[int, float], limit: int, step: int, furthest: int) -> int | None:
    """Where to look next for the largest value that needs at most `limit`, by what is known to be needed at some values;
    None where it is known well enough."""
    low = max((v for v, needed in known.items() if needed <= limit), default=None)
    high = min((v for v, needed in known.items() if needed > limit), default=None)
    if low is None and high is not None:
        return None if high <= step else max(step, high // 4 // step * step)
    assert low is not None
    if low >= furthest or (high is not None and high - low <= max(step, low // CLOSE)):
        return None
    if known[low] >= NEAR * limit:
        return None
    if high is not None:
        value = _crossing(low, known[low], high, known[high], limit)
        return min(max(value // step * step, low + step), high - step)
    below = max((v for v in known if v < low), default=None)
    value = 2 * low if below is None else _crossing(below, known[below], low, known[low], limit)
    return min(max(value // step * step, low + step), LEAP * low, furthest)


def _crossing(one: int, needs: float, other: int, needs_there: float, limit: int) -> int:
    """Where the line through two points reaches the limit; half-way to a point of which nothing is known, far away where
    the line does not rise."""
    if needs_there == inf:
        return (one + other) // 2
    rise = (needs_there - needs) / (other - one)
    return int(one + (limit - needs) / rise) if rise > 0 else LEAP * other


def smallest_card(
    request: Request, registry: Registry, machine: Machine, chosen: Set, whole: Prediction, more: float
) -> str | None:
    """The smallest known card on which the set fits, with the plan that it would get there. `more`: by how much a whole
    simulation says more than an outline."""
    if machine.kind != "cuda":
        return None
    known_on = {machine.capability: whole}
    for card, known in sorted(CARDS.items(), key=lambda item: (item[1].memory, item[0])):
        if known.capability not in known_on and whole.needed_bytes <= known.memory * OTHERWISE:
            there = _elsewhere(request, registry, chosen, card, known.memory / more)
            if there is not None:
                known_on[known.capability] = there
        there = known_on.get(known.capability)  # equal kernels and the same plan: it needs the same
        if there is not None and there.verdict(known.memory) == "fits":
            return card
    return None


def _elsewhere(request: Request, registry: Registry, chosen: Set, card: str, memory: float) -> Prediction | None:
    """The whole simulation of the set on another card; None where there is no such plan, or its outline is larger than
    `memory`."""
    facts = {**request.facts, "device.type": "cuda", "device.capability": CARDS[card].capability}
    plan: Plan | None = resolved(replace(request, facts=facts), chosen.choices, registry)
    if plan is None or outline(plan, registry.hooks(plan), named(card)).needed > memory * (1 + MARGIN):
        return None
    return predict(plan, registry, machine=named(card))
