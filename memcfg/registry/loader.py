"""Finding and importing plugins. One that fails is recorded with its error and takes nothing else down.

Plugins are the entry points of the group `memcfg`, sorted by (distribution, name); memcfg's own core comes first. The
environment steers which third-party plugins are considered:

- `MEMCFG_PLUGINS=a,b`: only these; `MEMCFG_PLUGINS_OFF=a,b`: not these. Names of plugins or of distributions. A plugin
  that is off is not imported. memcfg's own plugins are always on.
- `MEMCFG_LOCAL=1`: also `memcfg_local.py` of the current folder, which holds a `plugin` and may hold its hooks.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from typing import Final

from memcfg.errors import PluginError
from memcfg.registry.installed import FIRST_PARTY, GIVEN, LOCAL, Installed, own_trace
from memcfg.registry.plugin import Plugin
from memcfg.registry.validate import Unusable, validate

GROUP: Final = "memcfg"
LOCAL_MODULE: Final = "memcfg_local"
ALLOW: Final = "MEMCFG_PLUGINS"
BLOCK: Final = "MEMCFG_PLUGINS_OFF"


@dataclass(frozen=True)
class Candidate:
    """A plugin that was found and not imported yet. `entry_name` is set where the plugin must bear that name."""

    found: Installed
    get: Callable[[], object]
    entry_name: str | None = None

    @property
    def names(self) -> set[str]:
        return {normal(self.found.name), self.found.distribution}


def installed(extra: Sequence[Plugin] = (), discover: bool | Collection[str] = True) -> tuple[Installed, ...]:
    """Every plugin, sorted, core first: what is installed (of which `discover` may name plugins or distributions), the
    local file, and what was handed in. Raises `PluginError` for a name that is not installed."""
    found = _switched(_candidates(discover))
    given = [_loaded(Candidate(Installed(p.name, GIVEN, "", ""), partial(_same, p))) for p in extra]
    return (_core(), *sorted([*found, *given], key=lambda p: (p.distribution, p.name, p.entry_point)))


def _candidates(discover: bool | Collection[str]) -> list[Candidate]:
    if isinstance(discover, bool):
        return [*_installed(), *_local()] if discover else []
    wanted = {normal(name): name for name in discover}
    found = [candidate for candidate in _installed() if candidate.names & wanted.keys()]
    for name in wanted.keys() - {"core"} - {name for candidate in found for name in candidate.names}:
        raise PluginError("no installed plugin or distribution has this name", wanted[name])
    return found


def flag(name: str) -> bool:
    """Whether an environment variable says yes."""
    return os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")


def environment() -> tuple[str | None, ...]:
    """All that `installed` depends on beside the installation."""
    local = flag("MEMCFG_LOCAL")
    return (os.environ.get(ALLOW), os.environ.get(BLOCK), str(Path.cwd()) if local else None)


def _core() -> Installed:
    from memcfg import __version__
    from memcfg.core import plugin

    return Installed(plugin.name, FIRST_PARTY, __version__, "memcfg.core:plugin", plugin)


@cache
def _installed() -> tuple[Candidate, ...]:
    """The entry points of all distributions, scanned once a process."""
    return tuple(Candidate(_described(e), cache(partial(_attribute, e)), e.name) for e in entry_points(group=GROUP))


def _described(entry: EntryPoint) -> Installed:
    name, version = ("unknown", "") if entry.dist is None else _named(entry.dist)
    return Installed(entry.name, name, version, entry.value)


@cache
def _named(distribution: Distribution) -> tuple[str, str]:
    """Name and version. They are asked for once: each question parses the metadata, with the whole README in it."""
    said = distribution.metadata
    # a half-removed distribution has entry points and no metadata: its name and version are then None
    return normal(said["Name"] or "unknown"), said["Version"] or ""


def _attribute(entry: EntryPoint) -> object:
    if not re.fullmatch(r"[\w.]+:[\w.]+", entry.value):
        raise Unusable(f"its entry point must read `module:attribute`, as in `acme:plugin`, not `{entry.value}`")
    return entry.load()


def _local() -> Iterator[Candidate]:
    path = Path.cwd() / f"{LOCAL_MODULE}.py"
    if flag("MEMCFG_LOCAL") and path.is_file():
        yield Candidate(Installed(LOCAL, LOCAL, "", str(path)), partial(_local_plugin, path))


def _local_plugin(path: Path) -> object:
    """The file's `plugin`. The module is known to Python, so that `hooks="memcfg_local"` finds it."""
    known = sys.modules.get(LOCAL_MODULE)
    if known is not None and known.__file__ == str(path):
        return known.plugin
    spec = importlib.util.spec_from_file_location(LOCAL_MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot read `{path}`")
    module = sys.modules[LOCAL_MODULE] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[LOCAL_MODULE]
        raise
    return module.plugin


def _same(plugin: Plugin) -> object:
    return plugin


def _switched(candidates: Sequence[Candidate]) -> list[Installed]:
    """Import what the environment leaves on; mark the rest as off."""
    allowed, blocked = _names(os.environ.get(ALLOW)), _names(os.environ.get(BLOCK))
    result = []
    for candidate in candidates:
        found = candidate.found
        if found.first_party:
            if normal(found.name) in blocked:
                text = f"it is part of memcfg and cannot be switched off by `{BLOCK}`"
                raise PluginError(text, found.name, found.distribution)
            result.append(_loaded(candidate))
        elif candidate.names & blocked:
            result.append(replace(found, status="off", error=f"switched off by `{BLOCK}`"))
        elif allowed and not candidate.names & allowed:
            result.append(replace(found, status="off", error=f"not among those that `{ALLOW}` lists"))
        else:
            result.append(_loaded(candidate))
    return result


def strangers() -> dict[str, list[str]]:
    """Names in the environment's lists that no installed plugin or distribution has, by variable. They stop nothing: one list
    may serve several installations."""
    known = {name for candidate in _installed() for name in candidate.names}
    found = {variable: sorted(_names(os.environ.get(variable)) - known) for variable in (ALLOW, BLOCK)}
    return {variable: names for variable, names in found.items() if names}


def _names(variable: str | None) -> set[str]:
    return {normal(name) for name in (variable or "").split(",") if name.strip()}


def normal(name: str) -> str:
    """A distribution's or plugin's name with the spellings of `-` and `_` made equal."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _loaded(candidate: Candidate) -> Installed:
    """Import a plugin and check its declaration. Whatever its code raises becomes its error."""
    begin = time.perf_counter()
    try:
        plugin = validate(candidate.get(), candidate.entry_name)
    except Unusable as error:
        return candidate.found.broken(str(error))
    except (Exception, SystemExit) as error:
        return candidate.found.broken(f"{type(error).__name__}: {error}{_advice(error)}", own_trace(error))
    ms = 1e3 * (time.perf_counter() - begin)
    return replace(candidate.found, name=plugin.name, plugin=plugin, import_ms=ms)


def _advice(error: BaseException) -> str:
    """A plugin written for a later interface may fail before its `api` can be read."""
    newer = isinstance(error, TypeError) and "Plugin.__init__() got an unexpected keyword" in str(error)
    return " (is it written for a newer memcfg?)" if newer else ""
