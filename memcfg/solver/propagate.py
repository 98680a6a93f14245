"""Finite-domain propagation over set literals, with a small search on top.

A variable's domain is a bit mask; a clause is a tuple of (variable, mask) and says that at least one of these variables
has a value in its mask. Propagation watches two literals of each clause: it looks at a clause only when the domain of a
watched variable shrinks, and only moves a watch that has become false. Every clause carries the tags of what it came
from, so that a contradiction can name its causes.

Decisions follow the caller's order of variables and of values, and what is learned from a contradiction is implied by
the clauses. The first model found is therefore the first one in that order, whatever the order of the clauses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

BUDGET: Final = 1_000
"""Contradictions after which a question is given up. Rule bases of configuration need none or a few."""

Literals = Sequence[tuple[int, int]]
Tags = frozenset[Hashable]

Preference = Callable[[int, Sequence[int]], Iterable[int]]

_DECISION: Final = -1
_ALWAYS: Final = [(-1, -1), (-1, -1)]  # a clause that every visit finds alive


class Unsatisfiable(Exception):
    """No model. `tags` are of clauses that contradict each other (not necessarily a minimal set)."""

    def __init__(self, tags: Tags) -> None:
        super().__init__(tags)
        self.tags = tags


class Entangled(Exception):
    """The budget of contradictions is spent. `tags` are those met most often."""

    def __init__(self, tags: Sequence[Hashable]) -> None:
        super().__init__(tags)
        self.tags = tuple(tags)


class Budget:
    """How many contradictions may still be met, over all searches that share it."""

    def __init__(self, contradictions: int = BUDGET) -> None:
        self.left = contradictions
        self._met: dict[Hashable, int] = {}

    def spend(self, tags: Tags) -> None:
        """Count one contradiction between clauses with these tags. Raises `Entangled` where it was one too many."""
        for tag in tags:
            self._met[tag] = self._met.get(tag, 0) + 1
        self.left -= 1
        if self.left < 0:
            raise Entangled(sorted(self._met, key=lambda t: (-self._met[t], str(t))))


class Propagation:
    """Clauses, and the state of one search over them. `full` are the domains before anything is known.

    A prepared object may be copied, and its copies changed with `add`, `drop` and `swap`, until its search begins."""

    def __init__(self, full: Sequence[int], clauses: Iterable[tuple[Literals, Tags]] = ()) -> None:
        self.dom = list(full)
        self._clauses: list[list[tuple[int, int]]] = []
        self._tags: list[Tags] = []
        self._watch: list[list[int]] = [[] for _ in full]
        self._units: list[int] = []  # clauses of at most one literal; they are used once and need no watch
        for literals, tags in clauses:
            self.add(literals, tags)

    def copy(self) -> Propagation:
        other = Propagation.__new__(Propagation)
        other.dom = self.dom[:]
        other._clauses = [clause[:] for clause in self._clauses]
        other._tags, other._units = self._tags[:], self._units[:]
        other._watch = [watching[:] for watching in self._watch]
        return other

    def add(self, literals: Literals, tags: Tags) -> int:
        """Add a clause over known variables. Returns its number."""
        k = len(self._clauses)
        self._clauses.append(list(literals))
        self._tags.append(tags)
        if len(literals) < 2:
            self._units.append(k)
        else:
            self._watch[literals[0][0]].append(k)
            self._watch[literals[1][0]].append(k)
        return k

    def widen(self, full: Iterable[int]) -> None:
        """Add variables with these domains."""
        for mask in full:
            self.dom.append(mask)
            self._watch.append([])

    def drop(self, k: int) -> None:
        """Leave a clause out."""
        self._clauses[k] = _ALWAYS

    def swap(self, k: int, literals: Literals) -> None:
        """Put a clause over the same variables, in the same order, in place of another."""
        self._clauses[k] = list(literals)

    # ------------------------------------------------------------------------------------------------ propagation

    def _begin(self) -> None:
        self._var: list[int] = []  # the trail: which variable shrank, what it was before, and by which clause
        self._old: list[int] = []
        self._why: list[int] = []
        self._steps: list[list[int]] = [[] for _ in self.dom]  # positions of a variable's entries in the trail
        self._levels: list[int] = []  # where in the trail each decision lies
        self._head = 0

    def _start(self) -> int | None:
        """Narrow by the clauses of one literal. Returns a violated clause, or None."""
        for k in self._units:
            clause = self._clauses[k]
            if clause is _ALWAYS:
                continue
            if not clause or not self.dom[clause[0][0]] & clause[0][1]:
                return k
            self._narrow(*clause[0], k)
        return None

    def _propagate(self) -> int | None:
        """Narrow domains as far as the clauses force. Returns a violated clause, or None."""
        trail, visit = self._var, self._visit
        while self._head < len(trail):
            var = trail[self._head]
            self._head += 1
            violated = visit(var)
            if violated is not None:
                return violated
        return None

    def _narrow(self, var: int, mask: int, why: int) -> None:
        old = self.dom[var]
        if old & ~mask:
            self._steps[var].append(len(self._var))
            self._var.append(var)
            self._old.append(old)
            self._why.append(why)
            self.dom[var] = old & mask

    def _visit(self, var: int) -> int | None:
        """Look at the clauses that watch a variable whose domain shrank: nearly all of resolving happens here."""
        dom, clauses, watching = self.dom, self._clauses, self._watch[var]
        left, moved, violated = dom[var], list[int](), None
        for at, k in enumerate(watching):
            clause = clauses[k]
            first, second = clause[0], clause[1]
            if first[0] == var:  # the literal on `var` comes second
                first, second = clause[0], clause[1] = second, first
            if left & second[1]:
                continue
            other, mask = first
            now = dom[other]
            if not now & ~mask:  # satisfied
                continue
            if self._rewatch(k, clause):
                moved.append(at)
            elif now & mask:
                self._narrow(other, mask, k)
            else:
                violated = k
                break
        for at in reversed(moved):
            del watching[at]
        return violated

    def _rewatch(self, k: int, clause: list[tuple[int, int]]) -> bool:
        """Watch another literal that is not false in place of the second."""
        dom = self.dom
        for j in range(2, len(clause)):
            var, mask = clause[j]
            if dom[var] & mask:
                clause[1], clause[j] = clause[j], clause[1]
                self._watch[var].append(k)
                return True
        return False

    def _undo(self, level: int) -> None:
        start = self._levels[level]
        while len(self._var) > start:
            var = self._var.pop()
            self.dom[var] = self._old.pop()
            self._steps[var].pop()
            self._why.pop()
        del self._levels[level:]
        self._head = start

    # ----------------------------------------------------------------------------------------------------- search

    def search(self, order: Sequence[int], prefer: Preference, budget: Budget | None = None) -> list[int]:
        """Decide the variables in `order`, each by the first bit of `prefer(variable, domains)` that is left.

        Returns the domains, one bit each for the variables of `order`. Raises `Unsatisfiable` or `Entangled`."""
        self._begin()
        self._budget = budget or Budget()
        violated = self._start()
        if violated is not None:
            raise Unsatisfiable(self._causes(violated))
        self._settle()
        at = 0
        while at < len(order):
            var = order[at]
            left = self.dom[var]
            if not left & (left - 1):
                at += 1
                continue
            bit = next((b for b in prefer(var, self.dom) if b & left), left & -left)
            self._levels.append(len(self._var))
            self._narrow(var, bit, _DECISION)
            if self._settle():
                at = 0
        return self.dom

    def _settle(self) -> bool:
        """Propagate; learn from contradictions until none is left. True if a decision was taken back."""
        back = False
        while (violated := self._propagate()) is not None:
            if not self._levels:
                raise Unsatisfiable(self._causes(violated))
            literals, tags, level = self._learn(violated)
            self._budget.spend(tags)
            if not literals:
                raise Unsatisfiable(tags)
            self._undo(level)
            self._assert(literals, tags)
            back = True
        return back

    def _assert(self, literals: dict[int, int], tags: Tags) -> None:
        """Store a learned clause, of which exactly one literal is not false here, and narrow by it."""
        ordered = sorted(literals.items(), key=lambda lit: self._when_false(*lit), reverse=True)
        k = self.add(ordered, tags)
        self._narrow(*ordered[0], k)

    # ------------------------------------------------------------------------------------------------ step by step

    def open(self) -> bool:
        """Begin without a search: propagate what is known. False if that is a contradiction."""
        self._begin()
        return self._start() is None and self._propagate() is None

    def assume(self, var: int, mask: int) -> bool:
        """Narrow a variable until `retract`, and propagate. False if that is a contradiction."""
        self._levels.append(len(self._var))
        if not self.dom[var] & mask:
            return False
        self._narrow(var, mask, _DECISION)
        return self._propagate() is None

    def retract(self, level: int) -> None:
        """Take back what was assumed, down to `level` assumptions."""
        if len(self._levels) > level:
            self._undo(level)

    @property
    def level(self) -> int:
        """How many assumptions hold."""
        return len(self._levels)

    # ------------------------------------------------------------------------------------------------ explanation

    def _learn(self, violated: int) -> tuple[dict[int, int], Tags, int]:
        """Resolve the violated clause backwards along the trail until one literal of the last level is left."""
        literals, tags = dict(self._clauses[violated]), set(self._tags[violated])
        for at in range(len(self._var) - 1, -1, -1):
            var = self._var[at]
            if var not in literals or self._after(var, at) & literals[var] or not self._old[at] & literals[var]:
                continue
            level = self._level(at)
            others = max((self._level(self._when_false(v, m)) for v, m in literals.items() if v != var), default=0)
            if level and others < level:
                return literals, frozenset(tags), others
            why = self._why[at]
            tags |= self._tags[why]
            self._resolve(literals, var, why)
        return {}, frozenset(tags), 0

    def _resolve(self, literals: dict[int, int], var: int, why: int) -> None:
        kept = literals.pop(var)
        for other, mask in self._clauses[why]:
            if other == var:
                kept &= mask
            else:
                literals[other] = literals.get(other, 0) | mask
        if kept:
            literals[var] = kept

    def _causes(self, violated: int) -> Tags:
        """Tags of the clauses that led to a contradiction without any decision."""
        tags = set(self._tags[violated])
        todo = [(var, mask, len(self._var)) for var, mask in self._clauses[violated]]
        seen: set[int] = set()
        while todo:
            var, mask, before = todo.pop()
            for at in self._steps[var]:
                if at >= before:
                    break
                if at in seen or not self._old[at] & ~self._after(var, at) & mask:
                    continue
                seen.add(at)
                why = self._why[at]
                tags |= self._tags[why]
                todo += [(v, m, at) for v, m in self._clauses[why] if v != var]
        return frozenset(tags)

    def _after(self, var: int, at: int) -> int:
        """The domain of `var` after its entry in the trail at position `at`."""
        steps = self._steps[var]
        following = bisect_right(steps, at)
        return self._old[steps[following]] if following < len(steps) else self.dom[var]

    def _when_false(self, var: int, mask: int) -> int:
        """Position in the trail where the literal became false; the trail's length if it is not false."""
        return next((at for at in self._steps[var] if not self._after(var, at) & mask), len(self._var))

    def _level(self, at: int) -> int:
        """How many decisions had been taken at a position of the trail."""
        return sum(start <= at for start in self._levels)


def contradiction(
    clauses: Iterable[tuple[Literals, Tags]], full: Sequence[int], budget: Budget | None = None
) -> Tags | None:
    """Tags of clauses that contradict each other, or None. Only variables that some clause mentions are looked at."""
    listed = list(clauses)
    index = {var: i for i, var in enumerate(sorted({var for literals, _ in listed for var, _ in literals}))}
    local = [([(index[var], mask) for var, mask in literals], tags) for literals, tags in listed]
    try:
        Propagation([full[var] for var in index], local).search(range(len(index)), lambda var, dom: (), budget)
    except Unsatisfiable as error:
        return error.tags
    return None
