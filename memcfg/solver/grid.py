"""Which points of a grid resolve, without resolving each: the combinations of values for some options that a request
may be completed with.

One state of propagation is narrowed axis by axis. A contradiction, a choice that nothing can read any more, or a check that
fails cuts off every point behind it. At a full point propagation has decided most, and what is left is decided by the
defaults; where one has to yield, the point is resolved on its own. What is valid behind a partial point depends on the
options that are open there and on those that share a rule with them, which is the same at many: it is found out once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, NamedTuple

from memcfg.solver.asked import normalise
from memcfg.solver.check import failed, verdict
from memcfg.solver.expr import UNSET, mentions
from memcfg.solver.lower import Clause, Lit, Lowering, Node, truth
from memcfg.solver.problem import Answer, Problem
from memcfg.solver.propagate import Budget, Propagation, Unsatisfiable
from memcfg.solver.request import Choice, Request
from memcfg.solver.rules import Check
from memcfg.solver.theory import Tagged, Theory

KEPT: Final = 4096
"""Partial points with at most so many points behind them are remembered with those of them that are valid."""

Point = dict[str, Any]
Values = tuple[Any, ...]


def valid_points(theory: Theory, request: Request, axes: Mapping[str, Sequence[Any]]) -> Iterator[Point]:
    """The points of the product of `axes` (option -> values; `UNSET` leaves the option out) with which the request
    resolves, in the order of the product. An axis goes before the request's own choice of that option.

    Raises `RequestError` where some value is none of its option's."""
    grid = _Grid(theory, request, _current(theory, axes))
    if grid.state.open():
        yield from grid.walk({}, grid.unread, grid.checks)


def _current(theory: Theory, axes: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """The axes with every value checked, under their current names."""
    current: dict[str, list[Any]] = {}
    for name, values in axes.items():
        for value in values:
            key = name
            if value is not UNSET:
                ((key, choice),) = normalise(theory, Request({name: Choice(value, "sweep")})).choices.items()
                value = choice.value
            current.setdefault(key, []).append(value)
    return current


class _Watched(NamedTuple):
    """A check, and what its verdict depends on: variables and axes."""

    rule: Check
    when: Node | None
    variables: frozenset[int]
    axes: tuple[str, ...]


class _Grid:
    """`pick[key]` is a variable that says which value of an axis is taken."""

    def __init__(self, theory: Theory, request: Request, axes: dict[str, list[Any]]) -> None:
        asked = normalise(theory, request)
        program = theory.program(asked.pending)
        fixed = {key: value for key, value in asked.values.items() if key not in axes}
        self.axes, self.keys, self.program = axes, list(axes), program
        self.problem = Problem(
            program, fixed, asked.facts, {k: d.value for k, d in asked.decided.items() if k not in axes}
        )
        self.unread = [program.node(rule) for key in fixed for rule in self.problem.ignored(key)]
        self._ignored = {key: [self._unread(key, value) for value in values] for key, values in axes.items()}
        self.checks = [self._watched(rule, when) for rule, when in program.checks]
        self.pick: dict[str, int] = {}
        self._near: dict[int, set[int]] = {}
        self.state = self._state(Lowering(self.problem.full))
        self._behind = [prod(len(axes[key]) for key in self.keys[at:]) for at in range(len(self.keys) + 1)]
        self._reaches: dict[tuple[int, tuple[int, ...]], frozenset[int]] = {}
        self._verdicts: dict[Hashable, bool] = {}
        self._known: dict[Hashable, list[Values]] = {}

    def _state(self, lowering: Lowering) -> Propagation:
        """The question without the axes, and for each axis one set of clauses a value, of which one will count."""
        program, state, added = self.program, self.problem.prepare(), list[Tagged]()
        for key, values in self.axes.items():
            var = program.variables.index.get(key)
            for k in program.support_places.get(var, ()) if var is not None else ():
                state.drop(k)
            pick, every = len(lowering.full), (1 << len(values)) - 1
            lowering.full.append(every)
            self.pick[key] = pick
            for at, value in enumerate(values):
                added += [((*c, (pick, every & ~(1 << at))), tags) for c, tags in self._taken(key, value, lowering)]
        added += [(c, frozenset()) for c in lowering.definitions]
        state.widen(lowering.full[len(self.problem.full) :])
        for clause, tags in added:
            state.add([lit for lit in clause if lit[1]], tags)
        self._connect(clause for clause, _ in (*self.problem.clauses, *added))
        return state

    def _connect(self, clauses: Iterable[Clause]) -> None:
        """Note which variables share a clause, or a condition of a default."""
        groups = [{var for var, _ in clause} for clause in clauses]
        for key, proposals in self.program.defaults.items():
            if (var := self.program.variables.index.get(key)) is not None:
                groups += [{var, *_variables(proposal.when)} for proposal in proposals]
        for group in groups:
            for var in group:
                self._near.setdefault(var, set()).update(group)

    def _taken(self, key: str, value: Any, lowering: Lowering) -> list[Tagged]:
        """What taking one value of an axis says."""
        if key not in self.program.variables.index:
            return []
        if value is UNSET:
            return self.program.support[self.program.variables.index[key]]
        return self._at({key: value}).choice(key, lowering)

    def _at(self, point: Point) -> Problem:
        """The question at a point."""
        chosen = {key: value for key, value in point.items() if value is not UNSET}
        return replace(self.problem, choices={**self.problem.choices, **chosen}, budget=Budget())

    def _unread(self, key: str, value: Any) -> list[Node]:
        """Conditions under which nothing reads this value."""
        if value is UNSET:
            return []
        return [self.program.node(rule) for rule in self._at({key: value}).ignored(key)]

    def _watched(self, rule: Check, when: Node | None) -> _Watched:
        index, found = self.program.variables.index, set[int]()
        keys = {*rule.reads, *mentions(rule.when)}
        for key in keys:
            conditions = (p.when for p in self.program.defaults.get(key, ()))
            found.update([index[key]] if key in index else (v for node in conditions for v in _variables(node)))
        return _Watched(rule, when, frozenset(found), tuple(key for key in self.keys if key in keys))

    # ---------------------------------------------------------------------------------------------------------- walking

    def walk(self, point: Point, unread: Sequence[Node], checks: Sequence[_Watched]) -> Iterator[Point]:
        """The valid points behind a partial one. `unread`: conditions under which nothing reads what it chose; `checks`:
        those that have not passed yet."""
        keys = self.keys[len(point) :]
        if self._behind[len(point)] <= KEPT:
            for values in self._ends(point, unread, checks):
                yield {**point, **dict(zip(keys, values, strict=True))}
            return
        for further, open_, left in self._steps(point, unread, checks):
            yield from self.walk(further, open_, left)

    def _ends(self, point: Point, unread: Sequence[Node], checks: Sequence[_Watched]) -> list[Values]:
        """The values of the axes that are left with which a partial point is valid; found out once for all partial points
        that leave the same open."""
        seen = self._left_open(point, unread, checks)
        if seen not in self._known:
            key = self.keys[len(point)] if len(point) < len(self.keys) else None
            if key is None:
                self._known[seen] = [()] if self._decided(point) else []
            else:
                steps = self._steps(point, unread, checks)
                self._known[seen] = [(step[0][key], *rest) for step in steps for rest in self._ends(*step)]
        return self._known[seen]

    def _steps(
        self, point: Point, unread: Sequence[Node], checks: Sequence[_Watched]
    ) -> Iterator[tuple[Point, list[Node], list[_Watched]]]:  # fmt: skip
        """One axis further: each value that is possible, while it is assumed."""
        key, level = self.keys[len(point)], self.state.level
        for at, value in enumerate(self.axes[key]):
            if self.state.assume(self.pick[key], 1 << at):
                further = {**point, key: value}
                open_ = self._open((*unread, *self._ignored[key][at]))
                left = None if open_ is None else self._unchecked(further, checks)
                if open_ is not None and left is not None:
                    yield further, open_, left
            self.state.retract(level)

    def _left_open(self, point: Point, unread: Sequence[Node], checks: Sequence[_Watched]) -> Hashable:
        """What decides what is valid behind a partial point: how far it is, what is undecided, and the state of all that
        this meets in some clause, condition or check."""
        dom, at = self.state.dom, len(point)
        undecided = tuple([var for var, left in enumerate(dom) if left & (left - 1)])
        matters = self._reach(at, undecided).union(*map(_variables, unread), *(check.variables for check in checks))
        axes = tuple([_identity(point[key]) for check in checks for key in check.axes if key in point])
        open_ = tuple(map(id, unread)), tuple([check.rule.id for check in checks])
        return at, undecided, open_, axes, tuple([dom[var] for var in sorted(matters)])

    def _reach(self, at: int, undecided: tuple[int, ...]) -> frozenset[int]:
        """The undecided, all that they share a clause with, the later axes, and what may leave their values unread."""
        if (at, undecided) not in self._reaches:
            later = (node for key in self.keys[at:] for nodes in self._ignored[key] for node in nodes)
            picks = (self.pick[key] for key in self.keys[at:])
            near = (self._near.get(var, ()) for var in undecided)
            self._reaches[at, undecided] = frozenset(undecided).union(picks, *near, *map(_variables, later))
        return self._reaches[at, undecided]

    def _open(self, nodes: Iterable[Node]) -> list[Node] | None:
        """The conditions that may still come to hold; None where one does."""
        left = []
        for node in nodes:
            verdict = truth(node, self.state.dom)
            if verdict:
                return None
            if verdict is None:
                left.append(node)
        return left

    def _unchecked(self, point: Point, checks: Iterable[_Watched]) -> list[_Watched] | None:
        """The checks that cannot be told yet; None where one fails."""
        left, dom = [], self.state.dom
        for check in checks:
            applies = check.when is None or truth(check.when, dom)
            if applies is False:
                continue
            known = applies and all(not dom[var] & (dom[var] - 1) for var in check.variables)
            if not known or not all(key in point for key in check.axes):
                left.append(check)
            elif self._fails(point, check):
                return None
        return left

    def _fails(self, point: Point, check: _Watched) -> bool:
        dom, names = self.state.dom, (point.get(key) for key in check.axes)
        seen = (check.rule.id, *(dom[var] for var in check.variables), *map(_identity, names))
        if seen not in self._verdicts:
            found = verdict(check.rule, Answer(self._at(point), dom).lookup)
            self._verdicts[seen] = found is not None
        return self._verdicts[seen]

    def _decided(self, point: Point) -> bool:
        """Let the defaults decide what is left."""
        problem, level = self._at(point), self.state.level
        try:
            for var in self.program.order:
                left = self.state.dom[var]
                if left & (left - 1):
                    bit = next((b for b in problem.preferred(var, self.state.dom) if b & left), left & -left)
                    if not self.state.assume(var, bit):
                        return _resolves(problem)
            return _stands(Answer(problem, self.state.dom))
        finally:
            self.state.retract(level)


def _variables(node: Node) -> Iterator[int]:
    if isinstance(node, Lit):
        yield node.var
    else:
        for part in node.parts:
            yield from _variables(part)


def _identity(value: Any) -> Hashable:
    """A value of an axis, as a part of a dictionary key that keeps `True` and `1` apart."""
    return type(value), value if isinstance(value, Hashable) else repr(value)


def _resolves(problem: Problem) -> bool:
    try:
        return _stands(problem.solve())
    except Unsatisfiable:
        return False


def _stands(answer: Answer) -> bool:
    """Whether an answer leaves no choice unread and fails no check."""
    return not answer.unread() and not failed(answer)
