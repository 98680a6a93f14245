"""The plugin under test, and the registries with and without it. No other third party's plugin is in either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcfg.registry.installed import FIRST_PARTY
from memcfg.registry.plugin import Plugin
from memcfg.registry.registry import load

if TYPE_CHECKING:
    from memcfg.registry.registry import Registry


def declaration(plugin: Plugin | str) -> Plugin:
    """The plugin, given itself or by the name under which it is installed. Raises `PluginError`."""
    if isinstance(plugin, Plugin):
        return plugin
    found = next(p.plugin for p in load(discover=(plugin,), strict=True).plugins if p.name == plugin)
    assert found is not None
    return found


def with_it(plugin: Plugin | str) -> Registry:
    """memcfg's own plugins and this one. Raises `PluginError` where it is broken."""
    return load(discover=(FIRST_PARTY,), extra=[declaration(plugin)], strict=True)


def without_it() -> Registry:
    """memcfg's own plugins alone."""
    return load(discover=(FIRST_PARTY,))
