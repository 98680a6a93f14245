"""A plugin as it was found: where it comes from, and whether it could be used."""

from __future__ import annotations

import importlib
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from memcfg.errors import PluginError
from memcfg.registry.plugin import Plugin

FIRST_PARTY: Final = "memcfg"
"""The distribution of the plugins that memcfg itself ships; an error in one of them stops the program."""

LOCAL: Final = "local"
"""What stands for the distribution of a one-file plugin, `memcfg_local.py`."""

GIVEN: Final = "given"
"""What stands for the distribution of a plugin handed to `load(extra=...)`."""


@dataclass(frozen=True, eq=False)
class Installed:
    """One installed plugin.

    `plugin` is None where the object could not be had. `status`: ok; broken (`error` says why, `trace` is the plugin's own
    traceback if it raised); off (blocked by the user: `error` says by what). `import_ms`: time its module took to load."""

    name: str
    distribution: str
    version: str
    entry_point: str
    plugin: Plugin | None = None
    status: Literal["ok", "broken", "off"] = "ok"
    error: str | None = None
    trace: str | None = None
    import_ms: float = 0.0

    @property
    def first_party(self) -> bool:
        return self.distribution == FIRST_PARTY

    @property
    def local(self) -> bool:
        return self.distribution == LOCAL

    def broken(self, error: str, trace: str | None = None) -> Installed:
        """The same plugin, marked as unusable."""
        return replace(self, status="broken", error=error, trace=trace)


_BENEATH: Final = ("<frozen importlib", str(Path(importlib.__file__).parent), str(Path(__file__).parent))


def described(installed: Installed) -> str:
    """How messages name a plugin."""
    origin = f"{installed.distribution} {installed.version}".rstrip()
    return f"plugin `{installed.name}` ({origin})"


def failure(installed: Installed) -> PluginError:
    """A broken plugin's error, to be raised."""
    return PluginError(installed.error or "", installed.name, installed.distribution, installed.trace)


def own_trace(error: BaseException) -> str:
    """The traceback without the frames of the import system and of memcfg's registry: what its author needs to see."""
    parts = traceback.TracebackException.from_exception(error)
    parts.stack = traceback.StackSummary.from_list([f for f in parts.stack if not f.filename.startswith(_BENEATH)])
    return "".join(parts.format())
