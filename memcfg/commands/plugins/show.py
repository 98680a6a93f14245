"""`memcfg plugins show NAME`: everything that one plugin brings, without importing its hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcfg.commands.arguments import Arguments
from memcfg.commands.plugins import one_name
from memcfg.report.console import Terminal

if TYPE_CHECKING:
    from memcfg.registry import Installed


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print options, rules, values, hooks, config groups and commands. A broken plugin is shown with its error."""
    arguments.refuse_flags("json")
    name = one_name(arguments, "write `memcfg plugins show NAME`")
    from memcfg.commands.plugins.named import named
    from memcfg.registry import load
    from memcfg.registry.implements import hooks_in
    from memcfg.report import jsonform
    from memcfg.report.plugin_page import plugin_data, show_plugin

    found = named(name, load(strict=False))
    hooks = hooks_in(found.plugin.hooks) if found.plugin is not None and found.plugin.hooks else ()
    groups = _groups(found)
    if arguments.has("json"):
        terminal.show(jsonform.text(plugin_data(found, hooks, groups)))
    else:
        terminal.show(*show_plugin(found, hooks, groups))
    return 0


def _groups(found: Installed) -> dict[str, list[str]]:
    """The plugin's config groups and their files: its own folder, or the groups of `conf/` that it answers for."""
    from memcfg.compose.groups import conf_folders, groups_in
    from memcfg.files import conf_root

    plugin = found.plugin
    if plugin is None:
        return {}
    if plugin.conf is not None:
        return groups_in(conf_folders([plugin.conf]))
    return {group: names for group, names in groups_in([conf_root()]).items() if group in plugin.groups}
