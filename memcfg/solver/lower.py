"""From expressions to clauses of set literals.

A literal `Lit(var, mask)` says that a variable has one of the values in a bit mask. Expressions are brought into
negation normal form over literals (`Lit`, `Every`, `Some`) and then into clauses: "at least one of these literals
holds", each variable at most once. A disjunction of conjunctions multiplies out; where that would be large, a part is
replaced by an auxiliary variable that implies it, which keeps both the models and the strength of unit propagation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from memcfg.solver.domain import Domain
from memcfg.solver.expr import And, Between, Expr, In, Not, Or

MULTIPLY_AT_MOST: Final = 24
"""Clauses that one disjunction may multiply out to before an auxiliary variable is worth its cost."""


class Lit(NamedTuple):
    var: int
    mask: int


class Every(NamedTuple):
    parts: tuple[Node, ...]


class Some(NamedTuple):
    parts: tuple[Node, ...]


Node = Lit | Every | Some
Clause = tuple[tuple[int, int], ...]

NO: Final = 0b01
YES: Final = 0b10
"""The values of an auxiliary variable."""


class Variables:
    """The variables of a theory, one for each option that a rule reads, in alphabetical order."""

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        self.names = sorted(domains)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.domains = [domains[name] for name in self.names]
        self.full = [d.full for d in self.domains]

    def literal(self, key: str, values: Iterable[object]) -> Lit:
        var = self.index[key]
        return Lit(var, self.domains[var].mask(values))

    def node(self, expr: Expr, negated: bool = False) -> Node:
        """The expression in negation normal form."""
        if isinstance(expr, In):
            return self._signed(self.literal(expr.key, expr.values), negated)
        if isinstance(expr, Between):
            var = self.index[expr.key]
            return self._signed(Lit(var, self.domains[var].between(expr.low, expr.high)), negated)
        if isinstance(expr, Not):
            return self.node(expr.part, not negated)
        if isinstance(expr, (And, Or)):
            parts = tuple(self.node(p, negated) for p in expr.parts)
            return Every(parts) if isinstance(expr, And) is not negated else Some(parts)
        raise TypeError(f"not an expression: {expr!r}")

    def negate(self, node: Node) -> Node:
        if isinstance(node, Lit):
            return self._signed(node, True)
        parts = tuple(self.negate(p) for p in node.parts)
        return Some(parts) if isinstance(node, Every) else Every(parts)

    def _signed(self, literal: Lit, negated: bool) -> Lit:
        return Lit(literal.var, self.full[literal.var] & ~literal.mask) if negated else literal


class Lowering:
    """Turns nodes into clauses. `full` and `definitions` grow by the auxiliary variables that this takes."""

    def __init__(self, full: Sequence[int]) -> None:
        self.full = list(full)
        self.definitions: list[Clause] = []

    def clauses(self, node: Node) -> list[Clause]:
        """Clauses that together say what the node says."""
        if isinstance(node, Lit):
            return [] if node.mask == self.full[node.var] else [((node.var, node.mask),) if node.mask else ()]
        if isinstance(node, Every):
            return _minimal(c for part in node.parts for c in self.clauses(part))
        return self._disjunction([self.clauses(part) for part in node.parts])

    def any_of(self, *nodes: Node) -> list[Clause]:
        return self.clauses(Some(nodes))

    def _disjunction(self, parts: list[list[Clause]]) -> list[Clause]:
        if not all(parts):  # a part without clauses is true
            return []
        parts.sort(key=len)
        result: list[Clause] = [()]
        for at, part in enumerate(parts):
            left = 1
            for later in parts[at + 1 :]:
                left *= len(later)
            if len(part) > 1 and len(result) * len(part) * min(left, MULTIPLY_AT_MOST) > MULTIPLY_AT_MOST:
                part = [self._define(part)]
            result = _minimal(c for a in result for b in part if (c := self._merge(a, b)) is not None)
            if not result:
                return []
        return result

    def variable(self) -> int:
        """A new auxiliary variable, which is `NO` or `YES`."""
        self.full.append(NO | YES)
        return len(self.full) - 1

    def _define(self, part: list[Clause]) -> Clause:
        """A literal on a new variable which implies the clauses of `part`."""
        var = self.variable()
        self.definitions += [(*clause, (var, NO)) for clause in part]
        return ((var, YES),)

    def _merge(self, a: Clause, b: Clause) -> Clause | None:
        """Both clauses as one; `None` if some literal in it is always true."""
        masks = dict(a)
        for var, mask in b:
            masks[var] = masks.get(var, 0) | mask
            if masks[var] == self.full[var]:
                return None
        return tuple(sorted(masks.items()))


def _minimal(clauses: Iterable[Clause]) -> list[Clause]:
    """Without clauses that another one implies, in canonical order."""
    unique = sorted(set(clauses), key=lambda c: (len(c), c))
    kept: list[Clause] = []
    for clause in unique:
        masks = dict(clause)
        if not any(all(mask & ~masks.get(var, 0) == 0 for var, mask in other) for other in kept):
            kept.append(clause)
    return kept


def truth(node: Node, dom: Sequence[int]) -> bool | None:
    """Whether the node holds for every value that `dom` leaves (True), for none (False), or cannot be told (None)."""
    if isinstance(node, Lit):
        left = dom[node.var]
        return False if not left & node.mask else (True if not left & ~node.mask else None)
    unknown = False
    decides = isinstance(node, Some)
    for part in node.parts:
        verdict = truth(part, dom)
        if verdict is decides:
            return decides
        unknown = unknown or verdict is None
    return None if unknown else not decides
