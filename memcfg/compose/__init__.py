"""Composing a request from overrides and config files, with Hydra.

    request = memcfg.compose(["packing=bfd_split", "run.steps=200"])

The package itself is callable, because `memcfg.compose` is both the natural name of the function and the place where its
parts live; a function of the same name in `memcfg` would hide the package as soon as either is imported. Hydra is
imported on the first call: the parts that do without it (`spelling`) stay light.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memcfg.compose.request import compose, resolve
    from memcfg.registry import Registry
    from memcfg.solver.request import Request

__all__ = ["compose", "resolve"]


class _Callable(ModuleType):
    def __call__(
        self, overrides: Sequence[str] = (), *, registry: Registry | None = None, config_dir: str | None = None,
        searchpath: Sequence[str] = (),
    ) -> Request:  # fmt: skip
        from memcfg.compose.request import compose

        return compose(overrides, registry=registry, config_dir=config_dir, searchpath=searchpath)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(import_module("memcfg.compose.request"), name)


sys.modules[__name__].__class__ = _Callable
