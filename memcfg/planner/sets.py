"""Technique sets: every combination of what may vary that the rules allow.

The solver decides what is valid: each set is resolved like any request, so that none is ever proposed that a run would
refuse."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from memcfg.errors import ConflictError, MemcfgError, Problem, RequestError
from memcfg.solver.expr import ALWAYS, UNSET, same, show
from memcfg.solver.request import Choice, Request
from memcfg.solver.rules import Default

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry
    from memcfg.registry.plugin import Axis

ORIGIN: Final = "the planner"
SPLITS: Final = (1, 2, 4, 8, 16)
"""Into how many micro-batches one may be split; the step's gradient stays the same."""

SPLIT: Final = "run.batch_size"
MOST: Final = 2000
"""Combinations that are looked at."""


@dataclass(frozen=True)
class Values:
    """One place on an axis: what to choose, and how it changes what is learned ("" where it does not)."""

    choices: Mapping[str, Any]
    changes: str = ""


@dataclass(frozen=True, eq=False)
class Set:
    """A valid technique set: the plan, what was chosen beyond the request, and what that changes."""

    plan: Plan
    choices: Mapping[str, Any] = field(default_factory=dict)
    changes: tuple[str, ...] = ()

    @property
    def overrides(self) -> tuple[str, ...]:
        """What to append to the command line."""
        return tuple(f"{key}={show(value)}" for key, value in self.choices.items())


@dataclass(frozen=True)
class Wishes:
    """What the planner may do: vary only `axes` (all where empty), never `keep`, and change what is learned by `allow`
    (keys or sections; `all`)."""

    axes: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()


def named(names: Sequence[str], key: str) -> bool:
    """Whether one of the names is the key or its section."""
    return any(name in (key, key.partition(".")[0], "all") for name in names)


def check(wishes: Wishes, registry: Registry) -> None:
    """Raise `RequestError` for a name that is no axis."""
    from memcfg.compose.spelling import nearest

    keys = [axis.key for axis in registry.axes()] + [SPLIT]
    known = sorted({*keys, *(key.partition(".")[0] for key in keys), "all"})
    problems = [
        Problem(
            f"`{name}` is nothing that the planner varies",
            key=f"plan.{which}",
            nearest=nearest(name, known),
            fix=f"it varies {', '.join(sorted(keys))}",
        )
        for which in ("axes", "keep", "allow")
        for name in getattr(wishes, which)
        if name not in known
    ]
    if problems:
        raise RequestError(*problems)


def axes(request: Request, base: Plan, registry: Registry, wishes: Wishes) -> list[list[Values]]:
    """What may vary: for each axis its places, the plan's own first."""
    found = []
    for axis in registry.axes():
        fixed = axis.key in request.choices or named(wishes.keep, axis.key)
        if not fixed and (not wishes.axes or named(wishes.axes, axis.key)):
            found.append(_places(axis, base, wishes))
    if not named(wishes.keep, SPLIT) and (not wishes.axes or named(wishes.axes, SPLIT)):
        found.append(_splits(base))
    return [places for places in found if len(places) > 1]


def _places(axis: Axis, base: Plan, wishes: Wishes) -> list[Values]:
    own = base.get(axis.key, UNSET)
    places = [Values({})]
    for value in axis.values:
        changes = axis.changes.get(value, "")
        if not same(value, own) and (not changes or named(wishes.allow, axis.key)):
            places.append(Values({axis.key: value}, changes))
    return places


def _splits(base: Plan) -> list[Values]:
    size, accumulation = base["run.batch_size"], base["run.accumulation"]
    return [
        Values({} if n == 1 else {"run.batch_size": size // n, "run.accumulation": accumulation * n})
        for n in SPLITS
        if size % n == 0
    ]


def valid_sets(request: Request, base: Plan, registry: Registry, wishes: Wishes) -> list[Set]:
    """Every combination that resolves and can be run, the plan as it is first."""
    places = axes(request, base, registry, wishes)
    keys = [{key for place in axis for key in place.choices} for axis in places]
    impossible: set[frozenset[tuple[int, int]]] = set()
    found = []
    for picked in itertools.islice(_combinations([len(p) for p in places]), MOST):
        where = frozenset(enumerate(picked))
        if any(conflict <= where for conflict in impossible):
            continue
        chosen = [places[axis][place] for axis, place in enumerate(picked) if place]
        choices = {k: v for values in chosen for k, v in values.choices.items()}
        try:
            plan = _plan(request, choices, registry)
        except ConflictError as error:
            for options in _lasting(error, registry):
                impossible.add(frozenset((axis, place) for axis, place in where if keys[axis] & options))
            continue
        except MemcfgError:
            continue
        if _runs(plan):
            found.append(Set(plan, choices, tuple(values.changes for values in chosen if values.changes)))
    return found


def _lasting(error: ConflictError, registry: Registry) -> Iterator[set[str]]:
    """The options of each conflict that lasts as long as they have these values, whatever else is chosen: their defaults,
    where it rests on some, are the only ones."""
    theory = registry.theory
    for conflict in error.conflicts:
        defaults = [rule for name in conflict.rules if isinstance(rule := theory.rules.get(name), Default)]
        if all(len(theory.defaults[rule.key]) == 1 and rule.when == ALWAYS for rule in defaults):
            yield set(conflict.options)


def _combinations(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All combinations, those that move few axes first: what is impossible alone need not be tried with others."""
    everything = itertools.product(*(range(n) for n in counts))
    return iter(sorted(everything, key=lambda picked: sum(place > 0 for place in picked)))


def resolved(request: Request, choices: Mapping[str, Any], registry: Registry) -> Plan | None:
    """The plan with these choices added; None where the rules refuse it or it cannot be run yet."""
    try:
        plan = _plan(request, choices, registry)
    except MemcfgError:
        return None
    return plan if _runs(plan) else None


def _plan(request: Request, choices: Mapping[str, Any], registry: Registry) -> Plan:
    added = {key: Choice(value, ORIGIN) for key, value in choices.items()}
    return registry.plan(replace(request, choices={**request.choices, **added}))


def _runs(plan: Plan) -> bool:
    return not any(note.rule.endswith(".not_yet") for note in plan.notes)
