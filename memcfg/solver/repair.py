"""What to append to the command line so that a request resolves: every minimal repair.

A repair changes a set of options of which no part suffices: options that the user chose, or whose default takes part.
For one option every value that works is offered (of an integer, the nearest on either side); for several together one
combination. Facts, rules and derived options are never offered. What makes it another run than was asked for (other values
of `pivotal` options that the user chose: the trainer, the model) comes last.

Each repair is verified by resolving again, with overrides and fallbacks switched off: a repair must not work by
ignoring a choice. Only those that the user's own choices already bring about stay on, since the repair does not cause
them. Two repairs that lead to the same plan mean the same; the first is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any, Final, NamedTuple

from memcfg.solver.check import failed, verdict
from memcfg.solver.domain import Interval
from memcfg.solver.expr import UNSET, Option, mentions, same, show
from memcfg.solver.lower import truth
from memcfg.solver.problem import Answer, Problem
from memcfg.solver.propagate import Entangled, Unsatisfiable
from memcfg.solver.rules import Check, Default, Require
from memcfg.solver.theory import Tag
from memcfg.solver.values import Refused, accept
from memcfg.solver.wellformed import suggestion

SETS_AT_MOST: Final = 12
"""Sets of options to change together that are tried."""

TRIES: Final = 64
"""Sets of changes that are tried where several checks fail and none mends all."""

REACH: Final = 4096
"""How far from a number that a check refuses another one is looked for."""

Overrides = tuple[str, ...]
Changes = Mapping[str, Any]
Conflicts = Callable[[Problem], list[frozenset[Tag]]]


def repairs(problem: Problem, known: Sequence[frozenset[Tag]], conflicts: Conflicts) -> list[Overrides]:
    """Minimal repairs, cheapest first. `known` are minimal conflicts; `conflicts` finds more in a variation."""
    search = _Search(problem, _suggested(problem, known))
    blamed = [search.blames(tags) for tags in known]
    done: list[frozenset[str]] = []
    with suppress(Entangled):  # what was found until then is still true
        while len(done) < SETS_AT_MOST and (keys := search.cheapest(blamed, done)) is not None:
            more = conflicts(search.freed(keys))
            blamed += [search.blames(tags) for tags in more]
            if not more:
                done.append(keys)
                search.realise(keys)
    return search.found()


def _suggested(problem: Problem, known: Iterable[frozenset[Tag]]) -> list[tuple[str, Any]]:
    """What the rules of these conflicts suggest to try first."""
    theory = problem.program.theory
    rules = [theory.rules[t.name] for tags in known for t in sorted(tags) if t.kind == "rule"]
    texts = [text for rule in rules if isinstance(rule, Require) for text in rule.suggest]
    return [found for text in texts if (found := suggestion(text, theory.options)) is not None]


@dataclass(frozen=True)
class _Found:
    changes: Changes
    cost: tuple[int, ...]


class _Blame(NamedTuple):
    """One of `keys` has to change, in a repair that changes all of `given` (because they then need a value)."""

    keys: frozenset[str]
    given: frozenset[str]


def _grown(keys: frozenset[str], blamed: Iterable[_Blame]) -> Iterable[frozenset[str]]:
    """The ways to extend a set so that it touches the first conflict that it misses."""
    missed = next((b.keys for b in blamed if b.given <= keys and not b.keys & keys), None)
    return [keys] if missed is None else [keys | {key} for key in missed]


@dataclass(frozen=True)
class _Values:
    """Values to try in this order. `first_only`: one that works is enough."""

    values: Sequence[Any]
    first_only: bool = False


class _Search:
    def __init__(self, problem: Problem, suggested: Sequence[tuple[str, Any]] = ()) -> None:
        self.problem = replace(problem, pins={}, heeds_ignored=True)
        self.suggested = suggested
        self._kept = self._conceded()
        self._plans: dict[Any, _Found] = {}

    def _conceded(self) -> frozenset[str]:
        """Overrides and fallbacks that the user's choices and the facts bring about by themselves."""
        problem, variables = self.problem, self.problem.program.variables
        dom = list(problem.program.full)
        for key, value in {**problem.facts, **problem.choices}.items():
            if key in variables.index:
                dom[variables.index[key]] = variables.domains[variables.index[key]].bit(value)
        guards = [g for key in problem.choices for g in problem.guards(key)]
        return frozenset(g.rule.id for g in guards if truth(g.when, dom))

    def _strict(self, problem: Problem, changed: Iterable[str]) -> Problem:
        """The problem with overrides and fallbacks switched off."""
        changed = frozenset(changed)
        off = (g.rule.id for key in problem.choices for g in problem.guards(key) if self._off(key, g.rule.id, changed))
        return replace(problem, muted=self.problem.muted.union(off))

    def _off(self, key: str, rule: str, changed: frozenset[str]) -> bool:
        return key in changed or rule not in self._kept

    def blames(self, tags: Iterable[Tag]) -> _Blame:
        """The options of a conflict that a user can decide otherwise."""
        rules, options = self.problem.program.theory.rules, self.problem.program.theory.options
        keys, given = set[str](), set[str]()
        for tag in tags:
            if tag.kind == "free":
                given.add(tag.name)
            elif tag.kind in ("you", "unset", "decided"):
                keys.add(tag.name)
            elif tag.kind == "fact" and tag.name in self.problem.stated:
                keys.add(self.problem.stated[tag.name][0])
            elif tag.kind == "default" and isinstance(rule := rules[tag.name], Default):
                keys.add(rule.key)
        able = frozenset(key for key in keys - self.problem.held if options[key].role != "derived")
        return _Blame(able, frozenset(given))

    def cheapest(self, blamed: Sequence[_Blame], done: Sequence[frozenset[str]]) -> frozenset[str] | None:
        """The cheapest minimal set of options that touches every conflict and contains none of `done`."""
        sets, grown = set[frozenset[str]](), {frozenset[str]()}
        while sets != grown:
            sets = grown
            grown = {t for s in sets for t in _grown(s, blamed) if not any(d <= t for d in done)}
            grown = {s for s in grown if not any(t < s for t in grown)}
        return min(sets, key=lambda s: (self.cost(s), sorted(s)), default=None)

    def cost(self, keys: Iterable[str]) -> tuple[int, int]:
        """How many options change; among equals, deciding what was left open is cheaper than retyping."""
        keys = list(keys)
        return len(keys), sum(key in self.problem.choices for key in keys)

    def freed(self, keys: frozenset[str]) -> Problem:
        return self._strict(replace(self.problem, free=keys, facts=self.problem.without(keys)), keys)

    def realise(self, keys: frozenset[str]) -> None:
        """Keep each way to change these options that resolves."""
        if len(keys) > 1:
            self._combine(keys)
            return
        (key,) = keys
        tried = [self.problem.choices.get(key, UNSET)]
        for group in self._values(key):
            for value in group.values:
                if not any(same(value, v) for v in tried):
                    tried.append(value)
                    if self.attempt({key: value}) and group.first_only:
                        break
        if key in self.problem.choices:
            self.attempt({key: UNSET})

    def attempt(self, changes: Changes) -> bool:
        """Resolve again with these changes; keep them if that works."""
        answer = self.tried(changes)
        if answer is None or failed(answer):
            return False
        plan = tuple(map(repr, answer.values().values()))
        self._plans.setdefault(plan, _Found(changes, (self.pivots(changes), *self.cost(changes))))
        return True

    def tried(self, changes: Changes) -> Answer | None:
        """The answer with these changes, its checks aside; None where there is none, or a choice is unread in it."""
        choices = {key: value for key, value in self.problem.choices.items() if key not in changes}
        choices |= {key: value for key, value in changes.items() if value is not UNSET}
        facts = self.problem.without(changes)
        changed = replace(self.problem, choices=dict(sorted(choices.items())), facts=facts, heeds_ignored=False)
        try:
            answer = self._strict(changed, changes).solve()
        except Unsatisfiable:
            return None
        return None if answer.unread() else answer

    def pivots(self, keys: Iterable[str]) -> int:
        """How many of these options were chosen and make it another run."""
        options = self.problem.program.theory.options
        return sum(options[key].pivotal and key in self.problem.choices for key in keys)

    def found(self) -> list[Overrides]:
        """What was found, the cheapest first: what leaves the run what it is before what does not."""
        return [_overrides(f.changes) for f in sorted(self._plans.values(), key=lambda f: f.cost)]

    def _values(self, key: str) -> Iterator[_Values]:
        """What to try for an option: what a rule suggests, then its menu; for a number what it is when left
        out, then the nearest one on either side."""
        yield _Values([v for k, v in self.suggested if k == key and v is not UNSET])
        variables, option = self.problem.program.variables, self.problem.program.theory.options[key]
        if key not in variables.index:
            return
        symbols = [s for s in variables.domains[variables.index[key]].symbols if s is not UNSET]
        if option.kind != "int":
            yield _Values(symbols)
            return
        yield _Values(self._left_out(key))
        yield from self._numbers(key, [s for s in symbols if s is not None])
        yield _Values([s for s in symbols if s is None])

    def _numbers(self, key: str, symbols: Sequence[Any]) -> Iterator[_Values]:
        """Of the numbers that rules tell apart: downwards and upwards from the present one; without one, any that works
        if nothing else did."""
        now = self.problem.choices.get(key)
        near = now if type(now) is int else None
        numbers = sorted(s.nearest(near) if isinstance(s, Interval) else s for s in symbols)
        if near is not None:
            yield _Values([n for n in reversed(numbers) if n < near], first_only=True)
            yield _Values([n for n in numbers if n > near], first_only=True)
        elif not any(key in found.changes for found in self._plans.values()):
            yield _Values(numbers, first_only=True)

    def _left_out(self, key: str) -> list[Any]:
        """The value of a chosen option if the user had not chosen it."""
        choices = {k: v for k, v in self.problem.choices.items() if k != key}
        if len(choices) == len(self.problem.choices):
            return []
        try:
            return [self._strict(replace(self.problem, choices=choices), ()).solve().value(key)]
        except Unsatisfiable:
            return []

    def _combine(self, keys: frozenset[str]) -> None:
        """Try the first combination that the rules allow."""
        try:
            changes = self.freed(keys).solve().changes()
        except Unsatisfiable:
            return
        self.attempt(changes)


def _overrides(changes: Changes) -> Overrides:
    return tuple(f"~{key}" if value is UNSET else f"{key}={show(value)}" for key, value in changes.items())


def repairs_of_checks(answer: Answer, rules: Sequence[Check]) -> list[Overrides]:
    """Changes that make the failed checks pass, of options that they read or of choices that made them apply: of one option
    where that is enough, else of as few as there can be, no change in two of them."""
    search, values = _Search(answer.problem), answer.values()
    with suppress(Entangled):
        works = [search.attempt(changes) for changes in _changes(answer.problem, values, rules)]
        if not any(works) and len(rules) > 1:
            _several(search, _mending(search, values, rules), {rule.id for rule in rules})
    return search.found()


def _changes(problem: Problem, values: Mapping[str, Any], rules: Sequence[Check]) -> Iterator[Changes]:
    """Changes of one option that may make all these checks pass, what they suggest first."""
    options, choices = problem.program.theory.options, problem.choices
    suggested = [suggestion(text, options) for rule in rules for text in rule.suggest]
    yield from ({key: value} for key, value in filter(None, suggested))
    read = {key for rule in rules for key in rule.reads if options[key].role in ("choice", "setting")}
    for key in sorted(read | {key for rule in rules for key in mentions(rule.when) if key in choices}):
        yield from ({key: value} for value in _alternatives(options[key], values, rules))
        if key in choices:
            yield {key: UNSET}


@dataclass(frozen=True)
class _Mending:
    """A change of one option, and the failed checks that pass with it."""

    changes: Changes
    rules: frozenset[str]


def _mending(search: _Search, values: Mapping[str, Any], rules: Sequence[Check]) -> list[_Mending]:
    """The changes of one option that make some of the failed checks pass and no other fail, the cheapest first."""
    ids, found = {rule.id for rule in rules}, dict[str, _Mending]()
    for changes in (changes for rule in rules for changes in _changes(search.problem, values, [rule])):
        answer = None if repr(changes) in found else search.tried(changes)
        left = ids if answer is None else {rule.id for rule, _ in failed(answer)}
        if left < ids:
            found[repr(changes)] = _Mending(changes, frozenset(ids - left))
    return sorted(found.values(), key=lambda m: (search.pivots(m.changes), *search.cost(m.changes)))


def _several(search: _Search, mending: Sequence[_Mending], ids: set[str]) -> None:
    """Try the smallest sets of these changes that mend all checks between them."""
    for size in range(2, len(ids) + 1):
        used, tries = set[str](), 0
        for parts in combinations(mending, size):
            changes = {key: value for part in parts for key, value in part.changes.items()}
            names = {repr(part.changes) for part in parts}
            covered = ids == frozenset().union(*(part.rules for part in parts))
            if covered and len(changes) == size and not names & used and tries < TRIES:
                tries += 1
                if search.attempt(changes):
                    used |= names
        if used:
            return


def _alternatives(option: Option, values: Mapping[str, Any], rules: Sequence[Check]) -> Iterator[Any]:
    """The other entries of a menu, the other of yes and no, or the nearest numbers on either side that the checks accept."""
    now = values[option.key]
    yield from (v for v in option.values if not same(v, now))
    if type(now) is bool and not option.values:
        yield not now
    if type(now) is int and not option.values:
        for step in (-1, 1):
            numbers = (now + step * n for n in range(1, REACH + 1))
            fitting = (n for n in numbers if _fits(option, n) and not _fails(rules, {**values, option.key: n}))
            yield from islice(fitting, 1)


def _fits(option: Option, value: int) -> bool:
    try:
        accept(option, value)
    except Refused:
        return False
    return True


def _fails(rules: Iterable[Check], values: Mapping[str, Any]) -> bool:
    return any(verdict(rule, values) is not None for rule in rules)
