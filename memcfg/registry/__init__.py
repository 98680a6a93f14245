"""Plugins: what they are, how they are found, and how their hooks are called.

Authors need only what `memcfg` itself exports; `load`, `Registry` and `Hooks` are for memcfg and for tests. They are
imported on first use, so that importing a plugin's declaration stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memcfg.registry.hooks import Hooks
    from memcfg.registry.installed import Installed
    from memcfg.registry.registry import Registry, load

_HOMES = {
    "Hooks": "memcfg.registry.hooks",
    "Installed": "memcfg.registry.installed",
    "Registry": "memcfg.registry.registry",
    "load": "memcfg.registry.registry",
}

__all__ = ["Hooks", "Installed", "Registry", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
