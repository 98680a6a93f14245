"""Arithmetic on final values: `Check` rules, run after everything else is decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg.errors import RuleError
from memcfg.solver.expr import UNSET, holds
from memcfg.solver.lower import truth
from memcfg.solver.problem import Answer
from memcfg.solver.rules import Check


def failed(answer: Answer) -> list[tuple[Check, str]]:
    """The checks that an answer does not pass, each with what is wrong."""
    found = []
    for rule, when in answer.problem.program.checks:
        applies = when is None or truth(when, answer.dom)
        if applies and (text := verdict(rule, answer.lookup)) is not None:
            found.append((rule, text))
    return found


def verdict(rule: Check, values: Mapping[str, Any]) -> str | None:
    """What the check finds wrong; None where it holds or does not apply."""
    if not holds(rule.when, values):
        return None
    read = {key: values.get(key, UNSET) for key in rule.reads}
    if any(value is UNSET for value in read.values()):
        return None
    try:
        return rule.test(read)
    except Exception as error:  # the author's function, which may raise anything
        text = f"rule `{rule.id}`: its test raised {type(error).__name__}: {error}"
        raise RuleError(text, (rule.id,), rule.source) from error
