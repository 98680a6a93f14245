"""Composing a request from overrides and config files, with Hydra.

    request = memcfg.compose(["packing=bfd_split", "run.steps=200"])

The package itself is callable, because `memcfg.compose` is both the natural name of the function and the place where its
parts live; a function of the same name in `memcfg` would hide the package as soon as either is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from memcfg.compose.request import compose, resolve

if TYPE_CHECKING:
    from memcfg.registry import Registry
    from memcfg.solver.request import Request

__all__ = ["compose", "resolve"]


class _Callable(ModuleType):
    def __call__(
        self, overrides: Sequence[str] = (), *, registry: Registry | None = None, config_dir: str | None = None,
        searchpath: Sequence[str] = (),
    ) -> Request:  # fmt: skip
        return compose(overrides, registry=registry, config_dir=config_dir, searchpath=searchpath)


sys.modules[__name__].__class__ = _Callable
