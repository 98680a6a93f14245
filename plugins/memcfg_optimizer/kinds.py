"""The optimizers by name: which class each is, and which settings it reads."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

import torch

from memcfg import Problem, RunError

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "adamw": ("torch.optim", "AdamW"),
    "sgd": ("torch.optim", "SGD"),
    "adamw_bf16": ("memcfg_optimizer.stochastic", "StochasticAdamW"),
    "adamw_offload": ("memcfg_optimizer.offloaded", "OffloadedAdamW"),
    "adamw_8bit": ("bitsandbytes.optim", "AdamW8bit"),
    "paged_adamw_8bit": ("bitsandbytes.optim", "PagedAdamW8bit"),
    "lion_8bit": ("bitsandbytes.optim", "Lion8bit"),
    "adafactor": ("memcfg_optimizer.adafactor", "Adafactor"),
}
"""Module and class; the module is imported only when it is asked for."""

SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "adamw": ("betas", "eps", "fused"),
    "sgd": ("momentum", "fused"),
    "adamw_bf16": ("betas", "eps"),
    "adamw_offload": ("betas", "eps"),
    "adamw_8bit": ("betas", "eps"),
    "paged_adamw_8bit": ("betas", "eps"),
    "lion_8bit": ("betas",),
    "adafactor": (),
}
"""The settings `optimizer.*` that each takes besides learning rate and weight decay."""

SEEDED: Final = ("adamw_bf16",)
"""Those that draw random numbers of their own, from `run.seed`."""


def built(name: str, groups: list[dict[str, Any]], **settings: Any) -> torch.optim.Optimizer:
    """The optimizer of that name. Raises `RunError` where its package cannot be loaded."""
    module, kind = KINDS[name]
    try:
        made = getattr(importlib.import_module(module), kind)
    except (ImportError, OSError, RuntimeError) as error:
        text = f"`{module}` cannot be loaded: {error}"
        raise RunError(Problem(text, key="optimizer.name", fix="optimizer.name=adamw")) from error
    optimizer: torch.optim.Optimizer = made(groups, **settings)
    return optimizer


def name_of(optimizer: torch.optim.Optimizer) -> str:
    """What the plan calls an optimizer; the class's name for one that it does not know."""
    kind = type(optimizer)
    found = (name for name, (module, known) in KINDS.items() if kind.__name__ == known and kind.__module__.startswith(module.partition(".")[0]))  # fmt: skip
    return next(found, kind.__name__.lower())
