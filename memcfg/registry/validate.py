"""What is wrong with one plugin's declaration, seen by itself. The first fault found is the one reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from memcfg.registry.plugin import API, OLDEST_API, NotYet, Plugin
from memcfg.solver.expr import Expr, Option
from memcfg.solver.rules import Rule

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_KEY: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_TARGET: Final = re.compile(r"[\w.]+:[\w.]+")
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class Unusable(Exception):
    """A declaration that cannot be used; its text is the reason."""


def validate(plugin: object, entry_point: str | None = None) -> Plugin:
    """The plugin itself if its declaration is well formed, else `Unusable`. `entry_point` is the name it was found by."""
    if not isinstance(plugin, Plugin):
        raise Unusable(f"it is a `{type(plugin).__name__}`, not a `memcfg.Plugin`")
    for fault in _faults(plugin, entry_point):
        raise Unusable(fault)
    return plugin


def _faults(plugin: Plugin, entry_point: str | None) -> Iterator[str]:
    yield from _api_faults(plugin.api)
    if not isinstance(plugin.name, str) or not _NAME.fullmatch(plugin.name):
        yield f"its name is `{plugin.name}`: write lower-case letters, digits and `_`"
    if entry_point is not None and entry_point != plugin.name:
        yield f"the entry point is called `{entry_point}` and the plugin `{plugin.name}`: give both one name"
    yield from _option_faults(plugin.options)
    yield from _rule_faults(plugin.name, plugin.rules)
    yield from _provides_faults(plugin.provides)
    yield from _reference_faults(plugin)


def _api_faults(api: object) -> Iterator[str]:
    if type(api) is not int:
        yield f"its `api` is `{api!r}`, not a whole number"
    elif api > API:
        yield f"it is written for plugin interface {api}, and this memcfg offers {API}: upgrade memcfg"
    elif api < OLDEST_API:
        yield f"it is written for plugin interface {api}, and this memcfg needs {OLDEST_API} or newer: upgrade the plugin"


def _option_faults(options: Iterable[Any]) -> Iterator[str]:
    seen: set[str] = set()
    for option in options:
        if not isinstance(option, Option):
            yield f"`options` holds a `{type(option).__name__}`: make options with `Bool`, `Enum`, `Int`, `Setting` or `Fact`"
        elif not _KEY.fullmatch(option.key):
            yield f"`{option.key}` ({option.source}) is no option key: write `group.name` in lower case"
        elif option.key in seen:
            yield f"`{option.key}` ({option.source}) is declared twice"
        else:
            seen.add(option.key)


def _rule_faults(name: str, rules: Iterable[Any]) -> Iterator[str]:
    seen: set[str] = set()
    for rule in rules:
        if not isinstance(rule, Rule):
            yield f"`rules` holds a `{type(rule).__name__}`, not a rule"
        elif not isinstance(rule.id, str) or not rule.id.startswith(f"{name}."):
            yield f"rule id `{rule.id}` ({rule.source}) does not begin with `{name}.`"
        elif rule.id in seen:
            yield f"rule id `{rule.id}` ({rule.source}) is used twice"
        else:
            seen.add(rule.id)


def _provides_faults(provides: Any) -> Iterator[str]:
    if not isinstance(provides, Mapping):
        yield '`provides` maps option keys to values, as in `{"loss.type": ("focal",)}`'
        return
    for key, values in provides.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            yield f'`provides` must give `{key}` a tuple of values, as in `("focal",)`, not `{values!r}`'


def _reference_faults(plugin: Plugin) -> Iterator[str]:
    if plugin.active is not None and not isinstance(plugin.active, Expr):
        yield "`active` is no rule expression: compare an option, as in `key('loss.type') == 'focal'`"
    if not all(isinstance(item, NotYet) for item in plugin.not_yet):
        yield "`not_yet` holds something else than `NotYet(when, because)`"
    if plugin.hooks is not None and not _MODULE.fullmatch(str(plugin.hooks)):
        yield f"`hooks` names a module, as in `memcfg_focal.hooks`, not `{plugin.hooks}`"
    if plugin.conf is not None and "://" not in str(plugin.conf):
        yield f"`conf` is a Hydra search path, as in `pkg://memcfg_focal.conf`, not `{plugin.conf}`"
    if plugin.preflight is not None and not _TARGET.fullmatch(str(plugin.preflight)):
        yield f"`preflight` must name `module:function`, not `{plugin.preflight}`"
    for command, target in plugin.commands.items():
        if not _TARGET.fullmatch(str(target)):
            yield f"command `{command}` must name `module:function`, not `{target}`"
