"""That each rule of a plugin matters in some request that its author thought of."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memcfg.errors import RuleError
from memcfg.registry.plugin import Plugin
from memcfg.solver.theory import Theory
from memcfg.testing.outcome import CPU, outcome, request_of
from memcfg.testing.subject import declaration, with_it

EXERCISED = "MEMCFG_EXERCISED"
"""A file to which ids of rules are written that a test holds responsible, for `memcfg lint --exercised FILE`."""


def assert_rules_exercised(plugin: Plugin | str, requests: Iterable[Mapping[str, Any]]) -> None:
    """Fail if some rule of the plugin could be deleted and every one of these requests came out as before.

    `requests` are values by key, among them facts of the host: `{"loss.type": "acme", "device.type": "cuda"}`."""
    plugin = declaration(plugin)
    idle = unexercised(plugin, with_it(plugin).theory, list(requests))
    exercised(*(rule.id for rule in plugin.rules if rule.id not in idle))
    if idle:
        raise AssertionError("rules without which every request comes out the same: " + ", ".join(idle))


def unexercised(
    plugin: Plugin, theory: Theory, requests: Sequence[Mapping[str, Any]], only: str | None = None
) -> list[str]:
    """The rules of the plugin (or just the one of this id) whose deletion none of the requests notices."""
    keys = tuple(theory.options)
    asked = [request_of(values, theory, CPU) for values in requests]
    usual = [outcome(theory, request, keys, repairs=False) for request in asked]

    def noticed(mutant: Theory) -> bool:
        pairs = zip(asked, usual, strict=True)
        return any(outcome(mutant, request, keys, repairs=False) != before for request, before in pairs)

    mutants = {rule.id: without(theory, rule.id) for rule in plugin.rules if only in (None, rule.id)}
    return [rule for rule, mutant in mutants.items() if mutant is not None and not noticed(mutant)]


def without(theory: Theory, rule: str) -> Theory | None:
    """The rule base without one rule; None where the others cannot be loaded without it."""
    try:
        return Theory.build(theory.options.values(), [r for r in theory.rules.values() if r.id != rule])
    except RuleError:
        return None


def exercised(*rules: str) -> None:
    """Note that a test holds these rules responsible for what it saw."""
    file = os.environ.get(EXERCISED)
    if file is not None:
        with open(file, "a", encoding="utf-8") as lines:
            lines.write("".join(f"{rule}\n" for rule in rules))
