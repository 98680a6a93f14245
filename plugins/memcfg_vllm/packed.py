"""Layers whose weights are packed in four or eight bits, as layers of whole weights.

A layer is asked what it makes of each unit vector, which is its weight as the trained model computes with it, whatever adapter lies
over it: nothing is packed a second time, as merging an adapter into packed weights would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

PACKED = ("Linear4bit", "Linear8bitLt")
"""What bitsandbytes calls them. Its package need not be there where nothing is packed."""


def packed(layer: Any) -> bool:
    """Whether a layer, or what an adapter lies over, has packed weights."""
    base = base_of(layer)
    return any(c.__name__ in PACKED and c.__module__.startswith("bitsandbytes") for c in type(base).__mro__)


def whole(layer: Any, dtype: torch.dtype) -> torch.nn.Linear:
    """A layer of whole weights in `dtype` that does what this one does in eval mode: [out, in], and the bias where it has one."""
    base = base_of(layer)
    device, width = base.weight.device, base.in_features
    with torch.no_grad(), _still(layer):
        nothing = layer(torch.zeros(1, width, dtype=dtype, device=device))
        weight = layer(torch.eye(width, dtype=dtype, device=device)) - nothing
    made = torch.nn.Linear(width, base.out_features, bias=base.bias is not None, device="meta")
    made.weight = torch.nn.Parameter(weight.T.contiguous().to(dtype), requires_grad=False)
    if base.bias is not None:
        made.bias = torch.nn.Parameter(nothing[0].to(dtype), requires_grad=False)
    return made


def base_of(layer: Any) -> Any:
    found = getattr(layer, "get_base_layer", None)
    return found() if callable(found) else layer


@contextmanager
def _still(layer: torch.nn.Module) -> Iterator[None]:
    """Without dropout; afterwards each module in the mode it was in."""
    modes = {module: module.training for module in layer.modules()}
    try:
        layer.eval()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
