"""The listing of `memcfg plugins`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from memcfg.report.tables import Column, table
from memcfg.report.words import count, wrapped

if TYPE_CHECKING:
    from rich.table import Table

    from memcfg.registry import Installed
    from memcfg.registry.hooks import Call


def show_plugins(plugins: Sequence[Installed]) -> list[str | Table]:
    """A table of what is installed, then what is wrong with what is broken."""
    columns = (Column("plugin"), Column("from"), Column("status"), Column("contributes", ratio=1))
    rows = ((p.name, f"{p.distribution} {p.version}".strip(), p.status, contributes(p)) for p in plugins)
    return [*table(columns, rows), *_faults(plugins)]


def show_calls(calls: Sequence[Call]) -> list[str | Table]:
    """A table of hook calls, then how much they come to."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("hook")
    table.add_column("plugin")
    table.add_column("ms", justify="right")
    for call in calls:
        table.add_row(call.hook, call.plugin, f"{call.ms:.1f}")
    plugins = len({call.plugin for call in calls})
    total = f"{count(len(calls), 'call')} of {count(plugins, 'plugin')}, {sum(call.ms for call in calls):,.0f} ms"
    return [table, "", total]


class Check(Protocol):
    """See `memcfg.testing.examination.Checked`."""

    @property
    def name(self) -> str: ...
    @property
    def result(self) -> str: ...
    @property
    def lines(self) -> tuple[str, ...]: ...


def show_checks(found: Installed, checks: Sequence[Check]) -> list[str]:
    """A line for each check with what it saw, then the verdict."""
    lines: list[str] = []
    for check in checks:
        first = f"{check.result:<8}{check.name:<14}"
        lines += wrapped(check.lines[0], " " * 24, first=f"{first:<24}") if check.lines else [first.rstrip()]
        lines += [line for more in check.lines[1:] for line in wrapped(more, " " * 26, first=" " * 24)]
    faults = sum(check.result == "fault" for check in checks)
    verdict = count(faults, "fault") if faults else "no fault"
    return [*lines, "", f"`{found.name}` ({f'{found.distribution} {found.version}'.strip()}): {verdict}"]


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
