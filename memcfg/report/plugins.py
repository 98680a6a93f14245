"""The listing of `memcfg plugins`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memcfg.report.words import count, wrapped

if TYPE_CHECKING:
    from rich.table import Table

    from memcfg.registry import Installed


def show_plugins(plugins: Sequence[Installed]) -> list[str | Table]:
    """A table of what is installed, then what is wrong with what is broken."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    for name in ("plugin", "from", "status"):
        table.add_column(name, overflow="fold")
    table.add_column("contributes", ratio=1, overflow="fold")
    for plugin in plugins:
        table.add_row(
            plugin.name, f"{plugin.distribution} {plugin.version}".strip(), plugin.status, contributes(plugin)
        )
    return [table, *_faults(plugins)]


def contributes(installed: Installed) -> str:
    """What a plugin brings, in a few words."""
    plugin = installed.plugin
    if plugin is None:
        return ""
    parts = [count(len(plugin.options), "option")] if plugin.options else []
    parts += [count(len(plugin.rules), "rule")] if plugin.rules else []
    parts += [f"{key}={value}" for key, values in plugin.provides.items() for value in values]
    parts += [f"command {name}" for name in plugin.commands]
    parts += [f"not yet {item.when}" for item in plugin.not_yet]
    return ", ".join(parts)


def _faults(plugins: Sequence[Installed]) -> Iterator[str]:
    for plugin in plugins:
        if plugin.status != "ok":
            origin = f"{plugin.distribution} {plugin.version}".strip()
            yield ""
            yield from wrapped(f"{plugin.status}: `{plugin.name}` ({origin}): {plugin.error}", indent="  ", first="")
