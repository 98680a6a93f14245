"""Liger's kernels in the layers of one model, and in nothing else.

Liger patches two things: modules of the model, each by a new `forward` of its own, and names in the module of Transformers
that the architecture comes from (the function that applies rotary embeddings). The first ends with the model. The second
would reach every model of the process, so it is undone at once and holds only while a step of this model runs."""

from __future__ import annotations

import inspect
import logging
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import torch
from liger_kernel.transformers import monkey_patch

from memcfg import Problem, RunError
from memcfg.engine.forward import causal_model

# Of the backends of a kernel Liger needs one; it warns of each that cannot be imported.
logging.getLogger("liger_kernel.backends.registry").setLevel(logging.ERROR)

WITHOUT = "liger.layers=false  # Liger's loss only"


class LigerLayers(AbstractContextManager[None]):
    """What was patched. Entered around a step, it puts Liger's functions in place; left, the model's own.

    `modules` counts patched modules by the name of their new kind; `names` are the functions that change places."""

    def __init__(self, modules: Counter[str], functions: list[tuple[ModuleType, str, Any, Any]]) -> None:
        self.modules, self._functions, self._depth = modules, functions, 0

    @property
    def names(self) -> list[str]:
        return [name for _, name, _, _ in self._functions]

    def __enter__(self) -> None:
        self._depth += 1
        for space, name, _, ligers in self._functions:
            setattr(space, name, ligers)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            for space, name, own, _ in self._functions:
                setattr(space, name, own)

    def describe(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.modules.items()))
        return f"patched modules: {counts}" + (f"; during a step: {', '.join(self.names)}" if self.names else "")


def patch_layers(model: torch.nn.Module) -> LigerLayers:
    """Patch the model's layers. Raises `RunError` where Liger does not know the architecture or finds nothing in it."""
    inner = causal_model(model)
    kind = inner.config.model_type  # type: ignore[union-attr]
    apply = monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN.get(kind)  # type: ignore[call-overload]
    if apply is None:
        known = ", ".join(sorted(monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN))
        text = f"Liger has no kernels for model type `{kind}`; it has some for {known}"
        raise RunError(Problem(text, key="liger.layers", fix=WITHOUT))
    spaces = [sys.modules[name] for name in sorted({type(m).__module__ for m in inner.modules()})]
    before, forwards = [dict(vars(space)) for space in spaces], _forwards(inner)
    try:
        _apply(apply, inner)
        functions = [change for space, names in zip(spaces, before, strict=True) for change in _changes(space, names)]
    finally:
        for space, names in zip(spaces, before, strict=True):
            for _, name, own, _ in _changes(space, names, classes=True):
                setattr(space, name, own)
    modules = Counter(m._get_name() for m in inner.modules() if m.__dict__.get("forward") is not forwards[m])
    if not modules:
        raise RunError(Problem(f"Liger patched no module of `{type(inner).__name__}`", key="liger.layers", fix=WITHOUT))
    return LigerLayers(modules, functions)


def _apply(apply: Callable[..., None], model: torch.nn.Module) -> None:
    """All kernels of layers that Liger switches on by itself, and neither of its losses: the head is another's business."""
    takes = inspect.signature(apply).parameters
    losses = {name: False for name in ("cross_entropy", "fused_linear_cross_entropy") if name in takes}
    apply(model=model, **losses)


def _forwards(model: torch.nn.Module) -> dict[torch.nn.Module, Any]:
    return {module: module.__dict__.get("forward") for module in model.modules()}


def _changes(
    space: ModuleType, before: dict[str, Any], *, classes: bool = False
) -> list[tuple[ModuleType, str, Any, Any]]:
    """Names of a module that were bound anew. Classes only matter to models that are made later."""
    now = vars(space)
    return [
        (space, name, own, now[name])
        for name, own in before.items()
        if now.get(name) is not own and (classes or not isinstance(own, type))
    ]
