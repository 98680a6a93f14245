"""Faults of what is installed: those that the rules show, and those for which plugins, code and tests have to be known.

    memcfg lint                         exit code 1 if anything is found that no plugin allows
    memcfg lint --exercised FILE        also rules that no test holds responsible: FILE names those that one does

A plugin states what is meant to be as it is in `Plugin(allowed={"dead-value soup.depth=1": "the rule says why"})`.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from memcfg.registry.hooks import SELECTORS
from memcfg.registry.plugin import Plugin
from memcfg.registry.registry import Registry
from memcfg.solver.lint import Finding, lint
from memcfg.solver.theory import Theory
from memcfg.solver.wellformed import reads

NAMING: Final = frozenset({"Bool", "Enum", "Int", "Setting", "Fact", "Option", "key"})
"""Calls whose first argument names an option without reading its value."""


@dataclass(frozen=True)
class Linted:
    """`found`: what is wrong. `allowed`: what a plugin says is meant, with its reason."""

    found: tuple[Finding, ...]
    allowed: tuple[tuple[Finding, str], ...] = ()


def lint_installed(registry: Registry, exercised: Collection[str] | None = None) -> Linted:
    """Everything that is wrong with the installed plugins together. `exercised`: rules that some test names; of plugins of
    which it names none, the tests are somebody else's."""
    found = [*_broken(registry), *lint(registry.theory), *unread_options(registry)]
    if exercised is not None:
        tested = {rule.partition(".")[0] for rule in exercised}
        rules = [rule for rule in registry.theory.rules if rule.partition(".")[0] in tested]
        found += [_unexercised(rule) for rule in rules if rule not in exercised]
    reasons = {name: why for p in registry.plugins if p.plugin is not None for name, why in p.plugin.allowed.items()}
    kept = tuple(finding for finding in found if finding.name not in reasons)
    return Linted(kept, tuple((f, reasons[f.name]) for f in found if f.name in reasons))


def _unexercised(rule: str) -> Finding:
    return Finding("unexercised-rule", rule, "no test holds it responsible for anything", (rule,))


def _broken(registry: Registry) -> Iterator[Finding]:
    for plugin in registry.broken:
        yield Finding("broken-plugin", plugin.name, str(plugin.error))


# ---------------------------------------------------------------------------------------------------------- what is read


def unread_options(registry: Registry) -> Iterator[Finding]:
    """Options whose value nothing ever looks at. Those of a plugin that cannot run everything yet are left in peace."""
    plugins = {p.name: p.plugin for p in registry.plugins if p.status == "ok" and p.plugin is not None}
    read = _ruled(registry.theory) | SELECTORS
    packages = {"memcfg", *(package for p in plugins.values() if (package := _package(p)) is not None)}
    named = frozenset[str]().union(*(_named(package) for package in packages))
    for key, owner in registry.owners.items():
        if key in read or _looked_up(key, named) or plugins[owner].not_yet:
            continue
        yield Finding("unread-option", key, f"nothing reads it: no rule, and no code of {_listed(packages, owner)}")


def _listed(packages: Collection[str], owner: str) -> str:
    return f"memcfg or `memcfg_{owner}`" if f"memcfg_{owner}" in packages else f"memcfg or the plugin `{owner}`"


def _ruled(theory: Theory) -> frozenset[str]:
    return frozenset[str]().union(*(reads(rule) for rule in theory.rules.values()))


def _package(plugin: Plugin) -> str | None:
    return None if plugin.hooks is None else plugin.hooks.partition(".")[0]


def _looked_up(key: str, named: Collection[str]) -> bool:
    section, _, leaf = key.rpartition(".")
    return key in named or f"{section}.*" in named or f"*.{leaf}" in named


@cache
def _named(package: str) -> frozenset[str]:
    """Keys that the code of a package spells out, `section.*` where it makes them up."""
    spec = importlib.util.find_spec(package)
    folders = [] if spec is None else spec.submodule_search_locations or []
    files = [file for folder in folders for file in Path(folder).rglob("*.py")]
    if spec is not None and not folders and str(spec.origin).endswith(".py"):
        files = [Path(str(spec.origin))]  # a module that is no package
    return frozenset(name for file in files for name in _names(ast.parse(file.read_text(encoding="utf-8"))))


def _names(tree: ast.AST) -> Iterator[str]:
    naming = {id(n.args[0]) for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args and _called(n) in NAMING}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [str(v.value) if isinstance(v, ast.Constant) else "*" for v in node.values]
            if re.fullmatch(r"[a-z_0-9.]+\.\*|\*\.[a-z_0-9]+", "".join(parts)):
                yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in naming:
            yield node.value


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""
