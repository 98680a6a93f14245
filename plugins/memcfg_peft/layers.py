"""The layers of a model that hold an adapter."""

from __future__ import annotations

from collections import Counter

import torch
from peft.tuners.tuners_utils import BaseTunerLayer


def adapted_layers(model: torch.nn.Module) -> list[str]:
    """The names of the layers that hold the adapter."""
    return [name for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)]


def per_leaf(names: list[str]) -> str:
    """How often each layer is adapted: `q_proj: 2, v_proj: 2`."""
    counts = Counter(name.rpartition(".")[2] for name in names)
    return ", ".join(f"{leaf}: {count}" for leaf, count in sorted(counts.items()))
