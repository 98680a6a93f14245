"""Requests in which a rule has something to say, made from its condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product
from typing import Any, Final

from memcfg.solver.expr import UNSET, Option, holds, mentions, same
from memcfg.solver.rules import (
    Check,
    Default,
    Fallback,
    Force,
    Ignored,
    RemovedKey,
    RenameKey,
    RenameValue,
    Rule,
    condition,
)
from memcfg.solver.theory import Theory

TRIED: Final = 4096
"""Combinations of values that are looked at for one rule."""
KEPT: Final = 24
"""Requests that are made for one rule."""


def witnesses(rule: Rule, theory: Theory) -> list[dict[str, Any]]:
    """Requests by key in which the rule's condition holds, as far as the values that it compares show; none for arithmetic
    (`Check`)."""
    if isinstance(rule, RenameKey):
        return [{rule.old: value} for value in _values(theory.options[rule.new])[:1]]
    if isinstance(rule, RenameValue):
        return [{rule.key: rule.old}]
    if isinstance(rule, RemovedKey):
        return [{rule.key: 1}]
    if isinstance(rule, Check):
        return []
    held = islice(_holding(rule, theory), KEPT)
    return [asked for base in held for asked in _asked(rule, base, theory)]


def _holding(rule: Rule, theory: Theory) -> Iterator[dict[str, Any]]:
    """Values of what the condition reads, for which it holds."""
    when = condition(rule)
    options = [theory.options[key] for key in sorted(mentions(when))]
    for values in islice(product(*(_values(option) for option in options)), TRIED):
        named = {option.key: value for option, value in zip(options, values, strict=True)}
        if holds(when, named):
            stated = {o.key for o in options if o.role != "derived"}
            yield {key: value for key, value in named.items() if value is not UNSET and key in stated}


def _asked(rule: Rule, base: Mapping[str, Any], theory: Theory) -> Iterator[dict[str, Any]]:
    """The request itself, and with each value of the option that the rule is about."""
    yield dict(base)
    if isinstance(rule, (Default, Force, Ignored, Fallback)) and rule.key not in base:
        option = theory.options[rule.key]
        unread = rule.except_values if isinstance(rule, Ignored) else ()
        for value in _values(option)[:4]:
            if option.role != "derived" and value is not UNSET and not any(same(value, v) for v in unread):
                yield {**base, rule.key: value}


def _values(option: Option) -> list[Any]:
    """Some values of an option: its menu, or numbers at and above its least."""
    null = [None] if option.nullable else []
    if option.values:
        return [*option.values, *null]
    if option.kind == "int" or option.type in (int, float):
        least = option.minimum if option.minimum is not None else 1
        kind = option.type if option.kind == "setting" else int
        return [kind(least), kind(least) + 1, kind(least) + 1000, *null]
    return [{str: "x", list: [], dict: {}, bool: True}.get(option.type, UNSET), *null]
