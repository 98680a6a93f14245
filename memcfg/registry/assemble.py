"""Putting the plugins together: one rule base, without the plugins that do not fit.

Plugins are judged as a set, so that loading order decides nothing. An error in the rules of a third-party plugin disables
that plugin; an error in memcfg's own stops the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memcfg.errors import MemcfgError, RuleError
from memcfg.registry.claims import Faults, dangling_references, declared, extended_options, implemented, rival_claims
from memcfg.registry.installed import Installed, failure, own_trace
from memcfg.solver.theory import Theory


@dataclass(frozen=True)
class Assembly:
    """All plugins, in loading order, and the rule base of those that are ok.

    `implements` is `{option: {value: plugin}}`, for each option of which some plugin implements values."""

    plugins: tuple[Installed, ...]
    theory: Theory
    implements: Mapping[str, Mapping[Any, str]]


def assemble(plugins: Sequence[Installed], tolerant: bool = False) -> Assembly:
    """Judge the plugins together until those that are left fit.

    An error in one of memcfg's own plugins is raised. If `tolerant`, it is recorded like any other's, and only core, on
    which the rest stands, must be in order."""
    plugins = list(plugins)
    while True:
        good = [p for p in plugins if p.status == "ok"]
        faults = rival_claims(good) or dangling_references(good)
        judged = faults or _built(good, tolerant)
        if isinstance(judged, Theory):
            return Assembly(tuple(plugins), judged, _implements(good))
        plugins = [p.broken(_traced_back(judged[p][0], plugins), judged[p][1]) if p in judged else p for p in plugins]
        for plugin in plugins:
            if plugin.status == "broken" and not _expendable(plugin, tolerant):
                raise failure(plugin)


def _traced_back(text: str, plugins: Sequence[Installed]) -> str:
    """The text of a fault, saying so if what it misses belongs to a plugin that is broken itself."""
    for installed, plugin in declared(plugins):
        things = [*(o.key for o in plugin.options), *(v for values in plugin.provides.values() for v in values)]
        if installed.status == "broken" and any(f"`{thing}`" in text for thing in things):
            return f"{text}\n  (plugin `{installed.name}`, to which that belongs, could not be loaded)"
    return text


def _expendable(plugin: Installed, tolerant: bool) -> bool:
    return not (plugin.first_party and (plugin.name == "core" or not tolerant))


def _theory(good: Sequence[Installed]) -> Theory:
    rules = [rule for _, plugin in declared(good) for rule in plugin.rules]
    return Theory.build(extended_options(good).values(), rules)


def _error(good: Sequence[Installed]) -> Exception | None:
    try:
        _theory(good)
    except Exception as error:
        return error
    return None


def _built(good: Sequence[Installed], tolerant: bool) -> Theory | Faults:
    """The rule base, or who must go for there to be one."""
    try:
        return _theory(good)
    except Exception as error:
        suspects = [p for p in good if _expendable(p, tolerant)]
        own = _error([p for p in good if p not in suspects])
        if own is not None:
            raise own from None
        named = [p for p in suspects if isinstance(error, RuleError) and p.name in _prefixes(error)]
        guilty = _guilty(good, named, error) if named else _misfits(good, suspects)
        if not guilty:
            raise
        return {p: (_text(e), None if isinstance(e, MemcfgError) else own_trace(e)) for p, e in guilty.items()}


def _prefixes(error: RuleError) -> set[str]:
    return {rule.partition(".")[0] for rule in error.rules}


def _guilty(good: Sequence[Installed], named: Sequence[Installed], error: Exception) -> dict[Installed, Exception]:
    """Of the plugins whose rules an error names, those that fail without the others; all, if each is fine by itself.

    So a plugin is not disabled for what another does to its options."""
    alone = {p: _error([q for q in good if q is p or q not in named]) for p in named}
    return {p: e for p, e in alone.items() if e is not None} or dict.fromkeys(named, error)


def _misfits(good: Sequence[Installed], suspects: Sequence[Installed]) -> dict[Installed, Exception]:
    """Those that cannot be added, one at a time, to those that can. For errors that name nobody."""
    fitting = [p for p in good if p not in suspects]
    left = list(suspects)
    while True:
        fits = next((p for p in left if _error([*fitting, p]) is None), None)
        if fits is None:
            return {p: e for p in left if (e := _error([*fitting, p])) is not None}
        fitting.append(fits)
        left.remove(fits)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, MemcfgError) else f"{type(error).__name__}: {error}"


def _implements(good: Sequence[Installed]) -> dict[str, dict[Any, str]]:
    table: dict[str, dict[Any, str]] = defaultdict(dict)
    for _, plugin in declared(good):
        for key, values in implemented(plugin).items():
            table[key].update(dict.fromkeys(values, plugin.name))
    return dict(table)
