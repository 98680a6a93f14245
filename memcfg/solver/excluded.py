"""Why a default gave way: the rules that exclude its first proposal, given what was decided before that option.

Mostly one rule says it by itself, or a few clauses force it one after the other; only what takes a case split is asked of
the whole theory again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from memcfg.solver.explain import minimal_of
from memcfg.solver.problem import Answer, Problem
from memcfg.solver.rules import Default, Rule
from memcfg.solver.theory import Tag, Tagged


def why_excluded(answer: Answer, key: str, value: object) -> list[Rule]:
    """The rules that exclude a value of an option, most often one."""
    rules = answer.problem.program.theory.rules
    supposed = _Supposed(answer, key, value)
    at_once = supposed.at_once()
    if at_once is not None:
        return [rules[at_once]]
    core = supposed.forced()
    tags = sorted(supposed.searched() if core is None else supposed.minimal(core))
    found = [rules[tag.name] for tag in tags if tag.kind in ("rule", "default")]
    return [rule for rule in found if not isinstance(rule, Default)] or found


class _Supposed:
    """An answer as it was when an option was decided, with another value for it."""

    def __init__(self, answer: Answer, key: str, value: object) -> None:
        problem, self.program = answer.problem, answer.problem.program
        pretended = replace(problem, choices={**problem.choices, key: value})
        self.problem: Problem = replace(pretended, muted=frozenset(g.rule.id for g in pretended.guards(key)))
        self.var = self.program.variables.index[key]
        before = self.program.order[: self.program.order.index(self.var)]
        self.dom = list(self.program.full)
        for var in before:
            self.dom[var] = answer.dom[var]
        self.dom[self.var] = self.program.variables.domains[self.var].bit(value)
        self.before = before

    def at_once(self) -> str | None:
        """A rule that by itself excludes the value; the last by name if there are several."""
        violated = (t for t in self.program.mentioning.get(self.var, ()) if not _live(t, self.dom))
        return max((tag.name for _, tags in violated for tag in tags), default=None)

    def forced(self) -> list[Tagged] | None:
        """Clauses that exclude the value together, found by following what it forces; None where that leads nowhere."""
        dom, queue = [*self.problem.full], [self.var]
        dom[: len(self.dom)] = self.dom
        why: dict[int, list[Tagged]] = {}
        stated = self._stated()
        while queue:
            var = queue.pop(0)
            for tagged in (*self._touching(var), *stated.get(var, ())):
                live = _live(tagged, dom)
                if not live:
                    return _traced(tagged, why)
                if len(live) == 1 and dom[live[0][0]] & ~live[0][1]:
                    dom[live[0][0]] &= live[0][1]
                    why.setdefault(live[0][0], []).append(tagged)
                    queue.append(live[0][0])
        return None

    def _touching(self, var: int) -> Iterator[Tagged]:
        """The clauses in which a variable takes part, without what supports options that were chosen."""
        yield from self.program.mentioning.get(var, ())
        for supported, tagged in self.program.supporting.get(var, ()):
            if self.problem.supports(supported):
                yield tagged

    def _stated(self) -> dict[int, list[Tagged]]:
        found: dict[int, list[Tagged]] = {}
        for tagged in self.problem.asserted:
            for var, _ in tagged[0]:
                found.setdefault(var, []).append(tagged)
        return found

    def minimal(self, clauses: Iterable[Tagged]) -> frozenset[Tag]:
        """A minimal part of clauses that contradict the value and what was decided before."""
        listed = list(clauses)
        met = {var for clause, _ in listed for var, _ in clause}
        listed += (given for given in self._given(met) if given not in listed)
        return minimal_of(listed, self.problem, frozenset(tag for _, tags in listed for tag in tags))

    def _given(self, met: Collection[int] | None = None) -> list[Tagged]:
        """The value and what was decided, of the variables `met` (of all, if None)."""
        names = self.program.variables.names
        before = self.before if met is None else [var for var in self.before if var in met]
        decided = [(((var, self.dom[var]),), frozenset((Tag("decided", names[var]),))) for var in before]
        return [*decided, (((self.var, self.dom[self.var]),), frozenset((Tag("you", names[self.var]),)))]

    def searched(self) -> frozenset[Tag]:
        """The same, asked of everything."""
        given = self._given()
        core = self.problem.core(besides=given)
        if core is None:
            return frozenset()
        stated = [t for t in (*self.problem.asserted, *given) if t[1] <= core]
        return minimal_of([*stated, *self.program.tagged(core)], self.problem, core)


def _live(tagged: Tagged, dom: list[int]) -> list[tuple[int, int]]:
    """The literals of a clause that may still hold."""
    return [(var, mask) for var, mask in tagged[0] if dom[var] & mask]


def _traced(violated: Tagged, why: dict[int, list[Tagged]]) -> list[Tagged]:
    """A violated clause, and those that made its literals false."""
    found, open_ = {violated: None}, [violated]
    while open_:
        for var, _ in open_.pop()[0]:
            for tagged in why.get(var, ()):
                if tagged not in found:
                    found[tagged] = None
                    open_.append(tagged)
    return list(found)
