"""Which points of a grid resolve, without resolving each: the combinations of values for some options that a request
may be completed with.

One state of propagation is narrowed axis by axis. A contradiction, or a choice that nothing can read any more, cuts off
every point behind it; at a full point propagation has usually decided everything, and what is left is decided by the
defaults. Only where a default has to yield is the point resolved on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memcfg.solver.asked import normalise
from memcfg.solver.check import failed
from memcfg.solver.expr import UNSET
from memcfg.solver.lower import Lowering, Node, truth
from memcfg.solver.problem import Answer, Problem
from memcfg.solver.propagate import Budget, Propagation, Unsatisfiable
from memcfg.solver.request import Choice, Request
from memcfg.solver.theory import Tagged, Theory

Point = dict[str, Any]


def valid_points(theory: Theory, request: Request, axes: Mapping[str, Sequence[Any]]) -> Iterator[Point]:
    """The points of the product of `axes` (option -> values; `UNSET` leaves the option out) with which the request
    resolves, in the order of the product. An axis goes before the request's own choice of that option.

    Raises `RequestError` where some value is none of its option's."""
    grid = _Grid(theory, request, _current(theory, axes))
    if grid.state.open():
        yield from grid.walk({}, [])


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


class _Grid:
    """`pick[key]` is a variable that says which value of an axis is taken."""

    def __init__(self, theory: Theory, request: Request, axes: dict[str, list[Any]]) -> None:
        asked = normalise(theory, request)
        program = theory.program(asked.pending)
        fixed = {key: value for key, value in asked.values.items() if key not in axes}
        self.axes, self.keys = axes, list(axes)
        self.problem = Problem(
            program, fixed, asked.facts, {k: d.value for k, d in asked.decided.items() if k not in axes}
        )
        self.unread = [program.node(rule) for key in fixed for rule in self.problem.ignored(key)]
        self.pick: dict[str, int] = {}
        self.state = self._state(Lowering(self.problem.full))

    def _state(self, lowering: Lowering) -> Propagation:
        """The question without the axes, and for each axis one set of clauses a value, of which one will count."""
        program, state, added = self.problem.program, self.problem.prepare(), list[Tagged]()
        for key, values in self.axes.items():
            var = program.variables.index.get(key)
            for k in program.support_places.get(var, ()) if var is not None else ():
                state.drop(k)
            pick, every = len(lowering.full), (1 << len(values)) - 1
            lowering.full.append(every)
            self.pick[key] = pick
            for at, value in enumerate(values):
                added += [((*c, (pick, every & ~(1 << at))), tags) for c, tags in self._taken(key, value, lowering)]
        state.widen(lowering.full[len(self.problem.full) :])
        for clause, tags in (*added, *((c, frozenset()) for c in lowering.definitions)):
            state.add([lit for lit in clause if lit[1]], tags)
        return state

    def _taken(self, key: str, value: Any, lowering: Lowering) -> list[Tagged]:
        """What taking one value of an axis says."""
        program = self.problem.program
        if key not in program.variables.index:
            return []
        if value is UNSET:
            return program.support[program.variables.index[key]]
        return self._at({key: value}).choice(key, lowering)

    def _at(self, point: Point) -> Problem:
        """The question at a point."""
        chosen = {key: value for key, value in point.items() if value is not UNSET}
        return replace(self.problem, choices={**self.problem.choices, **chosen}, budget=Budget())

    def walk(self, point: Point, unread: list[Node]) -> Iterator[Point]:
        """The valid points behind a partial one. `unread`: conditions under which nothing reads what it chose."""
        if len(point) == len(self.keys):
            if self._completes(point):
                yield dict(point)
            return
        key, level = self.keys[len(point)], self.state.level
        for at, value in enumerate(self.axes[key]):
            conditions = [*unread, *self._unread(key, value)]
            if self.state.assume(self.pick[key], 1 << at) and not self._lost(conditions):
                yield from self.walk({**point, key: value}, conditions)
            self.state.retract(level)

    def _unread(self, key: str, value: Any) -> list[Node]:
        if value is UNSET:
            return []
        return [self.problem.program.node(rule) for rule in self._at({key: value}).ignored(key)]

    def _lost(self, conditions: Sequence[Node]) -> bool:
        return any(truth(node, self.state.dom) for node in (*conditions, *self.unread))

    def _completes(self, point: Point) -> bool:
        """Whether the request resolves at a point."""
        problem, level = self._at(point), self.state.level
        try:
            for var in problem.program.order:
                left = self.state.dom[var]
                if left & (left - 1):
                    bit = next((b for b in problem.preferred(var, self.state.dom) if b & left), left & -left)
                    if not self.state.assume(var, bit):
                        return _resolves(problem)
            return _stands(Answer(problem, self.state.dom))
        finally:
            self.state.retract(level)


def _resolves(problem: Problem) -> bool:
    try:
        return _stands(problem.solve())
    except Unsatisfiable:
        return False


def _stands(answer: Answer) -> bool:
    """Whether an answer leaves no choice unread and fails no check."""
    return not answer.unread() and not failed(answer)
