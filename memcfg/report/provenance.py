"""The way back from a value to what was typed, why a value cannot be, and how two plans differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memcfg.provenance import Change, Step
from memcfg.report import jsonform
from memcfg.report.errors import conflict_lines
from memcfg.report.plan import shown, why
from memcfg.report.tables import Column, table
from memcfg.report.words import count, listed, wrapped
from memcfg.solver.expr import ALWAYS, Option
from memcfg.solver.rules import Rule, condition

if TYPE_CHECKING:
    from rich.table import Table

    from memcfg.errors import ConflictError

Rules = Mapping[str, Rule]


# ------------------------------------------------------------------------------------------------------------ explain


def show_trail(step: Step, option: Option | None, rules: Rules, assumed: Sequence[str] = ()) -> list[str]:
    """A tree: the option, its rule, and below it everything that the rule read."""
    head = [] if option is None else [*wrapped(f"{option.key}: {option.doc}", indent="  ", first=""), ""]
    return [*head, *_tree(step, rules, assumed, "", "")]


def _tree(step: Step, rules: Rules, assumed: Sequence[str], first: str, rest: str) -> Iterator[str]:
    yield f"{first}{step.key} = {shown(step.key, step.decision)}"
    bar = "│ " if step.causes else "  "
    for text in _reasons(step, rules, assumed):
        yield from wrapped(text, indent=f"{rest}{bar}  ", first=f"{rest}{bar}")
    for number, cause in enumerate(step.causes, 1):
        last = number == len(step.causes)
        yield from _tree(cause, rules, assumed, f"{rest}{'└─' if last else '├─'} ", f"{rest}{'   ' if last else '│  '}")


def _reasons(step: Step, rules: Rules, assumed: Sequence[str]) -> Iterator[str]:
    decision = step.decision
    if step.again:
        yield "(its reasons stand above)"
        return
    rule = f" [{decision.rule}]" if decision.rule else ""
    yield f"{why(decision, step.key in assumed)}{rule}"
    known = rules.get(decision.rule or "")
    if known is not None and decision.kind != "you" and condition(known) != ALWAYS:
        yield f"when `{condition(known)}`"
    if known is not None and known.ref:
        yield f"see {known.ref}"


def trail_data(step: Step, rules: Rules) -> dict[str, Any]:
    """The same as plain data, nested."""
    known = rules.get(step.decision.rule or "")
    return {
        "key": step.key,
        **jsonform.option(step.decision),
        "when": None if known is None or condition(known) == ALWAYS else str(condition(known)),
        "ref": None if known is None else known.ref,
        "source": None if known is None or known.source is None else str(known.source),
        "from": [trail_data(cause, rules) for cause in step.causes],
    }


# ------------------------------------------------------------------------------------------------------------ why-not


def show_possible(override: str, changes: Sequence[Change]) -> list[str | Table]:
    """That the value can be, and what would come with it."""
    more = [change for change in changes if change.after.kind != "you"]
    tail: list[str | Table] = ["", "it would change as well", "", *show_changes(more)] if more else []
    return [*wrapped(f"`{override}` is possible: append it to the command", indent="  ", first=""), *tail]


def show_impossible(override: str, error: ConflictError) -> list[str]:
    """Why the value cannot be, and what would make it possible."""
    head = wrapped(f"`{override}` is not possible", indent="  ", first="")
    lines = list(conflict_lines(error, "to make it possible, append", "no single change makes it possible"))
    return [*head, *lines]


# --------------------------------------------------------------------------------------------------------------- diff


def show_difference(changes: Sequence[Change], names: tuple[str, str]) -> list[str | Table]:
    """What differs between two plans, side by side."""
    if not changes:
        return ["every option has the same value in both"]
    head = [f"{side}: {name or 'the plain run'}" for side, name in zip("AB", names, strict=True)]
    total = f"{count(len(changes), 'option')} differ{'s' if len(changes) == 1 else ''}"
    return [*head, "", *show_changes(changes, ("A", "B")), "", total]


def show_changes(changes: Sequence[Change], sides: tuple[str, str] = ("now", "then")) -> list[str | Table]:
    """A line for each option: both values, and the reason for the second (for the first, where the second has none)."""
    columns = (Column("option", most=26), Column(sides[0], most=12), Column(sides[1], most=12), Column("why", ratio=1))
    return table(columns, (_change(change, sides) for change in changes))


def _change(change: Change, sides: tuple[str, str]) -> tuple[str, str, str, str]:
    return change.key, shown(change.key, change.before), shown(change.key, change.after), _why(change, sides)


def _why(change: Change, sides: tuple[str, str]) -> str:
    side, decision = (sides[0], change.before) if change.after.kind == "unset" else (sides[1], change.after)
    lead = f"{side}: " if decision is change.before and change.before.kind != "unset" else ""
    rule = f" [{decision.rule}]" if decision.rule else ""
    follows = f"; follows from {listed(change.causes, 'and')}" if change.causes else ""
    return f"{lead}{why(decision)}{rule}{follows}"


def change_data(change: Change) -> dict[str, Any]:
    return {
        "key": change.key,
        "a": jsonform.option(change.before),
        "b": jsonform.option(change.after),
        "from": list(change.causes),
    }
