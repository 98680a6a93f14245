"""Why a request cannot be resolved: all disjoint minimal conflicts, at most three, each retold as a chain.

A conflict is a minimal set of origins (choices, facts, rules, defaults) whose clauses contradict each other: without
any one of them there is a model. Conflicts that need no default are looked for first, because they are about what the
user wrote. Two conflicts share neither a choice nor a default.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from memcfg.errors import Conflict, ConflictError
from memcfg.solver.asked import Asked
from memcfg.solver.problem import Answer, Problem
from memcfg.solver.propagate import contradiction as contradict
from memcfg.solver.repair import repairs, repairs_of_checks
from memcfg.solver.retell import given, retell
from memcfg.solver.rules import Check
from memcfg.solver.theory import Tag, Tagged

AT_MOST: Final = 3
"""Conflicts that are reported."""

_DROP_FIRST: Final = {"you": 0, "free": 0, "default": 1, "unset": 1, "decided": 1, "rule": 2, "fact": 3}
"""What is left out first where a contradiction can do without one thing or another: the less of what the user wrote
takes part, the fewer choices are blamed."""

Conflicting = frozenset[Tag]


def contradiction(problem: Problem, asked: Asked) -> ConflictError:
    """The error for a request that has no model."""
    return _error(replace(problem, heeds_ignored=True), asked)


def unread(answer: Answer, asked: Asked) -> ConflictError:
    """The error for a request whose answer leaves a choice unread."""
    problem = replace(answer.problem, heeds_ignored=True)
    if problem.core() is None:
        # Some default could have yielded so that the choice is read after all; but a choice must not move a default.
        problem = replace(problem, pins=answer.pins())
    return _error(problem, asked, fulfilled=True)


def _error(problem: Problem, asked: Asked, *, fulfilled: bool = False) -> ConflictError:
    found = minimal_conflicts(problem, fulfilled=fulfilled)
    told = [retell(problem, tags, asked) for tags in found]
    return ConflictError(told, lambda: repairs(problem, found, minimal_conflicts), asked.notes)


def failed_checks(answer: Answer, asked: Asked, failures: Iterable[tuple[Check, str]]) -> ConflictError:
    """The error for final values that a check refuses."""
    values, told = answer.values(), []
    failures = list(failures)
    for rule, text in failures:
        lines = [given(key, values[key], asked) for key in rule.reads]
        told.append(
            Conflict(rule.reads, (rule.id,), "\n".join([*lines, f"`{rule.id}`: {text}, because {rule.because}"]))
        )
    return ConflictError(told, lambda: repairs_of_checks(answer, [rule for rule, _ in failures]), asked.notes)


def minimal_conflicts(problem: Problem, limit: int = AT_MOST, *, fulfilled: bool = False) -> list[Conflicting]:
    """Disjoint minimal sets of tags without a model: those that need no default come first, those in which nothing
    reads a choice last. `fulfilled`: there is a model as long as unread choices do not count, which saves the search."""
    found: list[Conflicting] = []
    spent: set[Tag] = set()
    unread_last = problem.heeds_ignored and not fulfilled
    for variation in [*([replace(problem, heeds_ignored=False)] if unread_last else []), problem]:
        for with_defaults in (False, True):
            while len(found) < limit and (core := variation.core(defaults=with_defaults, spent=spent)) is not None:
                tags = _minimal(variation, core)
                found.append(tags)
                soft = {t for t in tags if t.kind in ("you", "default", "unset", "decided")}
                if not soft:  # the rules contradict the facts, whatever is chosen
                    return found
                spent |= soft
    return found


def _minimal(problem: Problem, core: Conflicting) -> Conflicting:
    """A minimal part of a contradiction, by leaving out one tag after the other in a fixed order."""
    return minimal_of([t for t in problem.clauses if t[1] <= core], problem, core)


def minimal_of(within: list[Tagged], problem: Problem, core: Conflicting) -> Conflicting:
    """The same, where the clauses with these tags are at hand."""
    for tag in sorted(core, key=lambda t: (_DROP_FIRST[t.kind], t.name)):
        if tag in core:
            rest = core - {tag}
            left = [t for t in within if t[1] <= rest]
            smaller = contradict(left, problem.full, problem.budget)
            if smaller is not None:
                core = smaller  # type: ignore[assignment]
                within = [t for t in left if t[1] <= core]
    return core
