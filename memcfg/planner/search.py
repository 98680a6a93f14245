"""Which technique sets fit a budget, fastest first.

    1. every set that the rules allow                                  solver, a millisecond each
    2. outlines of the plan and of each single change                  short simulations
    3. estimates for all others: savings add up, slowdowns multiply    arithmetic
    4. outlines of what may fit, in the order of their time            short simulations, a few dozen
    5. whole simulations of what is worth proposing                    seconds each, kept for the next time

A rung of the ladder is a set that fits and that no faster one beats in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from memcfg.errors import MemcfgError
from memcfg.planner.cores import side_by_side
from memcfg.planner.machine import Machine
from memcfg.planner.outline import Outline, outline
from memcfg.planner.predict import predict, refuse_pending
from memcfg.planner.prediction import MARGIN, Prediction
from memcfg.planner.sets import Set, Wishes, axes, valid_sets
from memcfg.planner.summary import EXPANDABLE
from memcfg.solver.expr import show

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry
    from memcfg.solver.request import Request

OUTLINES: Final = 24
"""Sets that are outlined in the order of their estimated time, beyond the single changes."""
SMALLEST: Final = 5
"""Sets that are outlined because they may be the smallest."""
RUNGS: Final = 5
ALIKE: Final = 0.01
"""Of estimates that differ by less than this share of what was asked for, the faster set is looked at."""
HOPELESS: Final = 1.3
"""Estimates this far above the budget are not looked at: they are good to some ten per cent."""
WORTHWHILE: Final = 0.97
"""A slower rung needs at most this share of the memory of a faster one."""

OUTLINED: Final = 0.5
SEARCHED: Final = 0.8
"""Shares of a search's time that are over when all outlines are there, and when the ladder is. The rest is how far it reaches."""

Told = Callable[..., Any]
"""Called with what goes on and how much of the work is done; `begins`: a further stage of it."""


@dataclass(frozen=True)
class Rung:
    """A set that was simulated whole."""

    set: Set
    prediction: Prediction


@dataclass(frozen=True)
class Ladder:
    """`rungs` fit, fastest first. `least` is the smallest set found, whether it fits or not. `fastest_ms` is the fastest
    step of all sets, fitting or not; `asked` what the request alone would need. `offers` are changes of what is learned
    that were not allowed."""

    budget: int
    machine: Machine
    rungs: tuple[Rung, ...]
    least: Rung
    asked: Rung
    fastest_ms: float
    tried: int
    valid: int
    offers: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()
    """Sets that cannot be built or simulated, each with the reason; neither are those that contain them."""


def ladder_of(rungs: Sequence[Rung]) -> list[Rung]:
    """Fastest first, without those that are slower and not smaller: whole simulations have the last word. What changes
    the result comes after what does not."""
    kept: list[Rung] = []
    for rung in sorted(rungs, key=lambda r: (bool(r.set.changes), r.prediction.step_ms)):
        if all(rung.prediction.needed_bytes <= WORTHWHILE * faster.prediction.needed_bytes for faster in kept):
            kept.append(rung)
    return kept


@dataclass
class Search:
    """One search. `tell` is called with what goes on."""

    request: Request
    registry: Registry
    machine: Machine
    budget: int
    wishes: Wishes
    tell: Told = lambda text, share=None, begins=False: None
    _outlines: dict[Any, Outline] = field(default_factory=dict)
    _ready: dict[Any, Outline] = field(default_factory=dict)
    """Outlines that nobody has asked for yet."""
    _predicted: dict[Set, Prediction] = field(default_factory=dict)
    _expected: int = 1
    """Outlines that there will be, as far as is known."""
    _wholes: int = 0
    _omitted: list[tuple[Set, str]] = field(default_factory=list)

    def run(self) -> Ladder:
        """Raises `RequestError` for facts that are unknown, and what resolving raises."""
        base = self.registry.plan(self.request)
        refuse_pending(base)
        sets = valid_sets(self.request, base, self.registry, self.wishes) or [Set(base)]
        self.tell(f"outlining {len(sets)} valid sets, the most hopeful first", begins=True)
        outlined = self._outlined(sets)
        fitting = [s for s in outlined if self.of(s).needed <= self.budget * (1 + MARGIN)]
        self.tell("simulating what may fit", OUTLINED, begins=True)
        candidates, smallest = self._undominated(fitting), min(outlined, key=lambda s: self.of(s).needed)
        self._simulated([*candidates[:RUNGS], smallest, sets[0]])
        rungs = self._confirmed(candidates)
        least = self._whole(smallest)
        if least.prediction.verdict(self.budget) == "fits":
            rungs = ladder_of([*rungs, least])
        return Ladder(
            self.budget, self.machine, tuple(rungs), least, self._whole(sets[0]),
            min(self.of(s).ms for s in outlined), len(self._outlines), len(sets),
            offers=self._offers(base), omitted=tuple(f"{' '.join(s.overrides)}: {why}" for s, why in self._omitted),
        )  # fmt: skip

    def of(self, chosen: Set) -> Outline:
        """The outline of a set."""
        name = _outlined_as(chosen)
        if name not in self._outlines:
            ready = self._ready.pop(name, None)
            self._outlines[name] = self._outline(chosen) if ready is None else ready
            self._progress(len(self._outlines))
        return self._outlines[name]

    def _outline(self, chosen: Set) -> Outline:
        return outline(chosen.plan, self.registry.hooks(chosen.plan), self.machine)

    def _progress(self, done: int) -> None:
        self.tell(f"outlined {done} of {max(done, self._expected)} sets", min(1.0, done / self._expected) * OUTLINED)

    def _prepare(self, sets: Sequence[Set]) -> None:
        """Outline sets of which many will be asked for, on all cores."""
        todo: dict[Any, Set] = {}
        for chosen in sets:
            todo.setdefault(_outlined_as(chosen), chosen)
        names = [name for name in todo if name not in self._outlines]
        before = len(self._outlines)
        found = side_by_side(self._outline, [todo[name] for name in names], lambda done: self._progress(before + done))
        self._ready |= {names[place]: outlined for place, outlined in found.items()}

    def _simulated(self, sets: Sequence[Set]) -> None:
        """Simulate sets whose rungs will be asked for, on all cores."""
        todo = list(dict.fromkeys(sets))
        found = side_by_side(self._predict, todo)
        self._predicted |= {todo[place]: prediction for place, prediction in found.items()}

    def _predict(self, chosen: Set) -> Prediction:
        return predict(chosen.plan, self.registry, machine=self.machine)

    def _possible(self, chosen: Set) -> bool:
        """Whether a set can be outlined. The rules do not know everything: a model may have no layer that a technique
        could change. The request itself raises."""
        if self._left_out(chosen):
            return False
        try:
            self.of(chosen)
        except MemcfgError as error:
            if not chosen.choices:
                raise
            self._omitted.append((chosen, str(error).splitlines()[0]))
            return False
        return True

    def _left_out(self, chosen: Set) -> bool:
        """Whether a set contains one that cannot be outlined."""
        return any(left.choices.items() <= chosen.choices.items() for left, _ in self._omitted)

    def _outlined(self, sets: Sequence[Set]) -> list[Set]:
        """The sets worth an outline, the plan itself and single changes first."""
        simplest = self._simplest(sets)
        self._expected = min(len(sets), len(simplest) + OUTLINES + SMALLEST)
        if self._possible(simplest[0]):  # what it loads and learns, the processes that take the others need not
            self._prepare(simplest)
        known = [s for s in simplest if self._possible(s)]
        others = [s for s in sets if s not in simplest and not self._left_out(s)]
        estimates = {id(s): self._estimate(s, known) for s in others}
        hopeful = [s for s in others if estimates[id(s)].needed <= self.budget * HOPELESS]
        hopeful.sort(key=lambda s: (bool(s.changes), estimates[id(s)].ms, len(s.choices)))
        alike = ALIKE * self.of(known[0]).needed
        small = lambda s: (bool(s.changes), estimates[id(s)].needed // alike, estimates[id(s)].ms, len(s.choices))  # noqa: E731
        smallest = sorted(others, key=small)[:SMALLEST]
        chosen = list(dict.fromkeys([*hopeful[:OUTLINES], *smallest]))
        self._prepare(chosen)
        return [*known, *filter(self._possible, chosen)]

    def _moved(self, chosen: Set) -> list[Any]:
        """The axes that a set moves: micro-batches are split by two options at once."""
        return [key for key in chosen.choices if key not in ("run.accumulation", EXPANDABLE)]

    def _simplest(self, sets: Sequence[Set]) -> list[Set]:
        """The request, every single change, and of what is only possible with other changes the first set that has it."""
        simplest = [s for s in sets if len(self._moved(s)) <= 1]
        seen = {change for s in simplest for change in s.choices.items()}
        for s in sets:  # those that move few axes come first
            if not seen.issuperset(s.choices.items()):
                simplest.append(s)
                seen.update(s.choices.items())
        return simplest

    def _estimate(self, chosen: Set, known: Iterable[Set]) -> Outline:
        """What a set would need if the changes that it is made of had nothing to do with each other."""
        base, *parts = known
        whole = self.of(base)
        needed, ms = whole.needed, whole.ms
        open_ = set(self._moved(chosen))
        for part in sorted(parts, key=lambda s: -len(self._moved(s))):
            moved = set(self._moved(part))
            if moved and moved <= open_ and part.choices.items() <= chosen.choices.items():
                found = self.of(part)
                open_ -= moved
                needed, ms = needed + found.needed - whole.needed, ms * found.ms / whole.ms
        return Outline(needed, needed, ms)

    def _undominated(self, fitting: Sequence[Set]) -> list[Set]:
        """Fastest first, without those that are slower and not smaller."""
        ordered = sorted(fitting, key=lambda s: (bool(s.changes), self.of(s).ms, len(s.choices)))
        kept: list[Set] = []
        for candidate in ordered:
            needed = self.of(candidate).needed
            if all(needed <= WORTHWHILE * self.of(faster).needed for faster in kept):
                kept.append(candidate)
        return kept

    def _confirmed(self, candidates: Sequence[Set]) -> list[Rung]:
        rungs: list[Rung] = []
        for candidate in candidates:
            rung = self._whole(candidate)
            if rung.prediction.verdict(self.budget) == "fits":
                rungs.append(rung)
            if len(rungs) == RUNGS:
                break
        return ladder_of(rungs)

    def _whole(self, chosen: Set) -> Rung:
        """The set with its whole simulation."""
        self._wholes += 1
        share = OUTLINED + (SEARCHED - OUTLINED) * min(1.0, self._wholes / (RUNGS + 2))
        self.tell(f"simulating {' '.join(chosen.overrides) or 'the request'}", share)
        return Rung(chosen, self._predicted.get(chosen) or self._predict(chosen))

    def _offers(self, base: Plan) -> tuple[str, ...]:
        """Changes of what is learned that the planner was not allowed to consider."""
        everything = Wishes(self.wishes.axes, self.wishes.keep, ("all",))
        places = [p for axis in axes(self.request, base, self.registry, everything) for p in axis if p.changes]
        from memcfg.planner.sets import named

        found = []
        for place in places:
            key, value = next(iter(place.choices.items()))
            if not named(self.wishes.allow, key):
                found.append(f"{key}={show(value)}: {place.changes}")
        return tuple(found)


def _outlined_as(chosen: Set) -> Any:
    """What outlines of a set are kept under: the allocator's own option changes nothing about them."""
    return tuple(sorted((k, v) for k, v in chosen.choices.items() if k != EXPANDABLE))
