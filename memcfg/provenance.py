"""Where the values of a plan come from, and how two plans differ. Works on plans alone: one read from a file will do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from memcfg.plan import Plan
from memcfg.solver.decision import Decision
from memcfg.solver.expr import UNSET, same

ROOTS: Final = ("you", "fact", "overridden", "fallback")
"""Kinds of decision behind which the user or the host stands."""

ABSENT: Final = Decision(UNSET, "unset")


@dataclass(frozen=True)
class Step:
    """One option on the way back to what the user typed. `causes`: the options that its rule reads. `again`: its own
    causes stand further up in the same tree."""

    key: str
    decision: Decision
    causes: tuple[Step, ...] = ()
    again: bool = False


def trail(plan: Plan, key: str) -> Step:
    """How `key` was decided: rule by rule, back to choices and facts. Raises `KeyError` for an unknown option."""
    return _step(plan, key, set())


def _step(plan: Plan, key: str, told: set[str]) -> Step:
    decision = plan.decisions[key]
    if key in told:
        return Step(key, decision, again=bool(decision.antecedents))
    told.add(key)
    return Step(key, decision, tuple(_step(plan, cause, told) for cause in _causes(plan, key)))


def _causes(plan: Plan, key: str) -> Iterator[str]:
    return (cause for cause in plan.decisions[key].antecedents if cause != key and cause in plan.decisions)


@dataclass(frozen=True)
class Change:
    """An option that has different values in two plans. `causes`: the choices and facts that differ and from which it
    follows; empty where it is one of them itself."""

    key: str
    before: Decision
    after: Decision
    causes: tuple[str, ...] = field(default=())


def compare(before: Plan, after: Plan) -> list[Change]:
    """Every option whose value differs: what was chosen or found first, then what follows from it."""
    differ = {key: pair for key, pair in _pairs(before, after).items() if not same(pair[0].value, pair[1].value)}
    roots = {key for key, pair in differ.items() if any(decision.kind in ROOTS for decision in pair)}
    found = []
    for key, (a, b) in differ.items():
        causes = () if key in roots else tuple(sorted(roots & (_behind(before, key) | _behind(after, key))))
        found.append(Change(key, a, b, causes))
    return sorted(found, key=lambda change: (change.key not in roots, change.key))


def _pairs(before: Plan, after: Plan) -> Mapping[str, tuple[Decision, Decision]]:
    keys = sorted({*before.decisions, *after.decisions})
    return {key: (before.decisions.get(key, ABSENT), after.decisions.get(key, ABSENT)) for key in keys}


def _behind(plan: Plan, key: str) -> set[str]:
    """Everything that a decision goes back to."""
    found, open_ = set[str](), [key]
    while open_:
        known = plan.decisions.get(open_.pop(), ABSENT)
        fresh = set(known.antecedents) - found
        found |= fresh
        open_ += fresh
    return found
