"""What plugins claim, and what they refer to: who takes what another has, and who names what nobody has.

Where two claim the same thing (a name, an option, a value of a menu, a command), memcfg's own plugin keeps it; two third
parties both lose it, for picking one would let an installation silently change what a run means.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memcfg.registry.installed import Installed, described
from memcfg.registry.plugin import Plugin
from memcfg.solver.expr import And, Expr, In, Not, Option, Or, mentions, same, show

Faults = dict[Installed, tuple[str, str | None]]
"""What is wrong with some plugins: the text, and the traceback where the plugin's code raised."""


def declared(plugins: Sequence[Installed]) -> Iterator[tuple[Installed, Plugin]]:
    for installed in plugins:
        if installed.plugin is not None:
            yield installed, installed.plugin


def implemented(plugin: Plugin) -> dict[str, tuple[Any, ...]]:
    """The values that a plugin implements: what it provides, and the whole menu of an open option of its own that it
    does not list among what it provides."""
    table = {o.key: o.values for o in plugin.options if o.open}
    table.update((key, tuple(values)) for key, values in plugin.provides.items())
    return {key: values for key, values in table.items() if values}


def rival_claims(good: Sequence[Installed]) -> Faults:
    claimants: dict[str, list[Installed]] = defaultdict(list)
    for installed, plugin in declared(good):
        for thing in _claims(plugin):
            if installed not in claimants[thing]:
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


def extended_options(good: Sequence[Installed]) -> dict[str, Option]:
    """Every option by key, menus extended by those who provide values."""
    options = {o.key: o for _, plugin in declared(good) for o in plugin.options}
    for _, plugin in declared(good):
        for key, values in plugin.provides.items():
            if key in options:
                options[key] = options[key].extended(values)
    return options


def dangling_references(good: Sequence[Installed]) -> Faults:
    options = extended_options(good)
    faults: Faults = {}
    for installed, plugin in declared(good):
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
    if plugin.active is not None:
        yield from _condition_faults("active", plugin.active, options)
    for item in plugin.not_yet:
        yield from _condition_faults("not_yet", item.when, options)


def _condition_faults(field: str, condition: Expr, options: Mapping[str, Option]) -> Iterator[str]:
    """A key that nobody declares, or a value that is on no menu: the condition could never hold."""
    for key in sorted(mentions(condition)):
        if key not in options:
            yield f"its `{field}` reads `{key}`, an option that no installed plugin declares"
    for part in _comparisons(condition):
        option = options.get(part.key)
        if option is None or option.kind not in ("bool", "enum"):
            continue
        for value in part.values:
            if isinstance(value, (str, bool)) and not any(same(value, v) for v in option.values):
                yield f"its `{field}` compares `{part.key}` with `{show(value)}`, which is not on the menu"


def _comparisons(expr: Expr) -> Iterator[In]:
    if isinstance(expr, In):
        yield expr
    elif isinstance(expr, Not):
        yield from _comparisons(expr.part)
    elif isinstance(expr, (And, Or)):
        for part in expr.parts:
            yield from _comparisons(part)
