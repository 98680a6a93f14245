"""Every row of the rule tables holds of the installed rule base, and every rule is held up by some row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memcfg.registry import load
from memcfg.solver import Theory
from memcfg.testing.rules import exercised, without


def test_rows(about: list[Any], theory: Theory, fault: Callable[[Theory, Any], str | None]) -> None:
    found = {f"tests/conformance/tables/{row.table}.md:{row.line}": fault(theory, row) for row in about}
    assert not {place: said for place, said in found.items() if said is not None}
    exercised(*(rule for row in about for rule in row.because))


def test_rows_name_rules_that_exist(rows: list[Any], theory: Theory) -> None:
    """A misspelt id would let a row pass without saying anything."""
    unknown = {(row.table, row.line, rule) for row in rows for rule in row.because if rule not in theory.rules}
    assert not unknown


def first_party_rules() -> list[str]:
    return [rule.id for p in load().plugins if p.first_party and p.plugin is not None for rule in p.plugin.rules]


def test_every_rule_is_in_some_row(rows: list[Any]) -> None:
    named = {rule for row in rows for rule in row.because}
    assert not sorted(set(first_party_rules()) - named)


@pytest.mark.slow
def test_deleting_any_rule_fails_a_row(
    rows: list[Any], theory: Theory, fault: Callable[[Theory, Any], str | None]
) -> None:
    """The tables are worth something only if they notice: without a rule, a row that names it must fail."""
    unnoticed = [
        rule
        for rule in first_party_rules()
        if (mutant := without(theory, rule)) is not None
        and not any(fault(mutant, row) is not None for row in rows if rule in row.because)
    ]
    assert not unnoticed
