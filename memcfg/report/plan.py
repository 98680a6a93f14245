"""A plan as a table: what was decided, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from memcfg.plan import Plan
from memcfg.report.errors import note_lines
from memcfg.report.tables import Column, table
from memcfg.report.words import count, listed, of, wrapped
from memcfg.solver.decision import Decision
from memcfg.solver.expr import UNSET, same

MASKED: Final = "***"

if TYPE_CHECKING:
    from rich.table import Table

CHANGED: Final = ("you", "forced", "overridden", "fallback", "yielded")
"""Kinds of decision that differ from the plain run."""

ORDER: Final = ("you", "overridden", "fallback", "forced", "yielded", "default")
"""What was asked for, what became of it, what follows from it, what goes without saying."""


def show_plan(plan: Plan, everything: bool = False) -> list[str | Table]:
    """The table, what is pending, and the notes, as things to print in order."""
    keys = [key for key, decision in plan.decisions.items() if everything or tells(decision)]
    if not everything:
        keys.sort(key=lambda key: ORDER.index(plan.decisions[key].kind))
    parts: list[str | Table] = [_heading(plan), ""]
    if keys:
        parts += _table(plan, keys, rules=everything)
    parts += _tail(plan, len(plan) - len(keys))
    return parts


def tells(decision: Decision) -> bool:
    """Whether a decision is worth telling unasked: somebody or some condition made it."""
    return decision.kind in CHANGED or (decision.kind == "default" and bool(decision.antecedents))


def shown(key: str, decision: Decision) -> str:
    """The value as one would type it; that of a secret is not told."""
    return MASKED if decision.secret and decision.value not in (UNSET, None) else of(key, decision.value)


def why(decision: Decision, assumed: bool = False) -> str:
    """The reason for a decision, as one phrase."""
    because = f"because {decision.because}" if decision.because else "a rule says so"
    requested = MASKED if decision.secret else of("", decision.requested)
    asked = f"you asked for `{requested}`" if decision.requested is not UNSET else ""
    phrases = {
        "you": f"you: {decision.origin}",
        "fact": "assumed" if assumed or decision.origin == "assumed" else "found on this host",
        "forced": f"forced, {because}",
        "overridden": f"{asked}; overridden, {because}",
        "fallback": f"{asked}; answered by this, {because}",
        "yielded": f"default that gave way, {because}",
        "default": f"default, {because}" if decision.because else "default",
        "unset": "nothing proposes it",
    }
    text = phrases[decision.kind]
    renamed = (
        decision.kind == "you" and decision.requested is not UNSET and not same(decision.requested, decision.value)
    )
    return f"{text} (as `{requested}`)" if renamed and not decision.secret else text


def _heading(plan: Plan) -> str:
    assumed = ", ".join(f"{fact}={of(fact, plan.get(fact))}" for fact in plan.assumed)
    return f"plan for {plan.device}" + (f", assuming {assumed}" if assumed else "")


def _table(plan: Plan, keys: list[str], rules: bool) -> list[str | Table]:
    return table(
        (Column("option", most=30), Column("value", most=16), Column("why", ratio=1)), _rows(plan, keys, rules)
    )


def _rows(plan: Plan, keys: list[str], rules: bool) -> Iterator[tuple[str, str, str]]:
    for key in keys:
        decision = plan.decisions[key]
        reason = why(decision, key in plan.assumed)
        if decision.rule and (rules or decision.kind != "default"):
            reason += f" [{decision.rule}]"
        yield key, shown(key, decision), reason


def _tail(plan: Plan, hidden: int) -> Iterator[str]:
    for pending in plan.pending:
        text = f"pending: {listed([pending.fact])} is not known yet; {listed(pending.rules, 'and')} wait for it"
        yield "\n".join(wrapped(text, indent="  ", first=""))
    if plan.notes:
        yield ""
        yield from note_lines(plan.notes)
    if hidden:
        yield ""
        yield f"{count(hidden, 'other option')} as usual (`memcfg resolve --all`)"
