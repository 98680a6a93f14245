"""Putting the plugins together: one rule base, without the plugins that do not fit.

Plugins are judged as a set, so that loading order decides nothing. Where two claim the same thing (a name, an option, a
value of a menu, a command), memcfg's own plugin keeps it; two third parties both lose it, for picking one would let an
installation silently change what a run means. An error in the rules of a third-party plugin disables that plugin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memcfg.errors import MemcfgError, RuleError
from memcfg.registry.installed import Installed, described, failure, own_trace
from memcfg.registry.plugin import Plugin
from memcfg.solver.expr import And, Expr, In, Not, Option, Or, mentions, same, show
from memcfg.solver.theory import Theory

Faults = dict[Installed, tuple[str, str | None]]
"""What is wrong with some plugins: the text, and the traceback where the plugin's code raised."""


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
        faults = _rival_claims(good) or _dangling_references(good)
        judged = faults or _built(good, tolerant)
        if isinstance(judged, Theory):
            return Assembly(tuple(plugins), judged, _implements(good))
        plugins = [p.broken(*judged[p]) if p in judged else p for p in plugins]
        for plugin in plugins:
            if plugin.status == "broken" and not _expendable(plugin, tolerant):
                raise failure(plugin)


def _expendable(plugin: Installed, tolerant: bool) -> bool:
    return plugin.name != "core" if tolerant else not plugin.first_party


def _declared(plugins: Sequence[Installed]) -> Iterator[tuple[Installed, Plugin]]:
    for installed in plugins:
        if installed.plugin is not None:
            yield installed, installed.plugin


# ------------------------------------------------------------------------------------------------------ claims


def implemented(plugin: Plugin) -> dict[str, tuple[Any, ...]]:
    """The values that a plugin implements: what it provides, and the whole menu of an open option of its own that it
    does not list among what it provides."""
    own = {o.key: o.values for o in plugin.options if o.open}
    return {**own, **{key: tuple(values) for key, values in plugin.provides.items()}}


def _rival_claims(good: Sequence[Installed]) -> Faults:
    claimants: dict[str, list[Installed]] = defaultdict(list)
    for installed, plugin in _declared(good):
        for thing in _claims(plugin):
            claimants[thing].append(installed)
    faults: Faults = {}
    for thing, rivals in claimants.items():
        for loser in _losers(rivals):
            others = " and ".join(described(r) for r in rivals if r is not loser)
            faults.setdefault(loser, (f"{thing} is also claimed by {others}", None))
    return faults


def _claims(plugin: Plugin) -> Iterator[str]:
    yield f"the name `{plugin.name}`"
    yield from (f"the option `{option.key}`" for option in plugin.options)
    yield from (f"the command `{command}`" for command in plugin.commands)
    for key, values in implemented(plugin).items():
        yield from (f"the value `{key}={show(value)}`" for value in values)


def _losers(rivals: Sequence[Installed]) -> list[Installed]:
    """All but the one with the best title: core, then memcfg's own. Equal titles all lose."""
    titles = [0 if r.name == "core" and r.first_party else 1 if r.first_party else 2 for r in rivals]
    best = min(titles)
    kept = titles.count(best) == 1
    return [r for r, title in zip(rivals, titles, strict=True) if not (kept and title == best)]


# -------------------------------------------------------------------------------------------------- references


def _options(good: Sequence[Installed]) -> dict[str, Option]:
    """Every option by key, menus extended by those who provide values."""
    options = {o.key: o for _, plugin in _declared(good) for o in plugin.options}
    for _, plugin in _declared(good):
        for key, values in plugin.provides.items():
            if key in options:
                options[key] = options[key].extended(values)
    return options


def _dangling_references(good: Sequence[Installed]) -> Faults:
    options = _options(good)
    faults: Faults = {}
    for installed, plugin in _declared(good):
        for text in _reference_faults(plugin, options):
            faults.setdefault(installed, (text, None))
    return faults


def _reference_faults(plugin: Plugin, options: Mapping[str, Option]) -> Iterator[str]:
    own = {option.key: option for option in plugin.options}
    for key in plugin.provides:
        if key not in options:
            yield f"it provides a value of `{key}`, an option that no installed plugin declares"
        elif key not in own and not options[key].open:
            yield f"it provides a value of `{key}`, whose owner did not declare it open"
    for option in plugin.options:
        above = option.key.rpartition(".")[0]
        while "." in above:
            if above in options:
                yield f"the option `{option.key}` lies under `{above}`, which is itself an option"
            above = above.rpartition(".")[0]
    yield from _active_faults(plugin.active, options)


def _active_faults(active: Expr | None, options: Mapping[str, Option]) -> Iterator[str]:
    for key in sorted(mentions(active)) if active is not None else ():
        if key not in options:
            yield f"its `active` reads `{key}`, an option that no installed plugin declares"
    for part in _comparisons(active):
        option = options.get(part.key)
        for value in part.values if option is not None and option.kind in ("bool", "enum") else ():
            if isinstance(value, (str, bool)) and not any(same(value, v) for v in options[part.key].values):
                yield f"its `active` compares `{part.key}` with `{show(value)}`, which is not on the menu"


def _comparisons(expr: Expr | None) -> Iterator[In]:
    if isinstance(expr, In):
        yield expr
    elif isinstance(expr, Not):
        yield from _comparisons(expr.part)
    elif isinstance(expr, (And, Or)):
        for part in expr.parts:
            yield from _comparisons(part)


# ------------------------------------------------------------------------------------------------------- rules


def _theory(good: Sequence[Installed]) -> Theory:
    rules = [rule for _, plugin in _declared(good) for rule in plugin.rules]
    return Theory.build(_options(good).values(), rules)


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
    for _, plugin in _declared(good):
        for key, values in implemented(plugin).items():
            table[key].update(dict.fromkeys(values, plugin.name))
    return dict(table)
