"""Matrix products of low-precision factors into float32, and the head's gradients that they sum.

On CUDA the products of bf16 and fp16 factors are written in float32 by the matrix unit itself. Rounding each chunk's
product before adding it up would bias training; so would a split reduction in bf16."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch


def product_(result: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """`result = left @ right`, float32 [R, C] from [R, K] and [K, C] of any one type."""
    if left.dtype == result.dtype:
        torch.mm(left, right, out=result)
    elif result.device.type == "cpu":
        torch.mm(left.float(), right.float(), out=result)
    else:
        torch.mm(left, right, out_dtype=result.dtype, out=result)


def accumulate_(result: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """`result += left @ right`, float32 [R, C] from [R, K] and [K, C] of any one type."""
    if left.dtype == result.dtype:
        result.addmm_(left, right)
    elif result.device.type == "cpu":
        result.addmm_(left.float(), right.float())
    else:
        torch.addmm(result, left, right, out_dtype=result.dtype, out=result)


class Needs(NamedTuple):
    """Which of the head's inputs need a gradient."""

    hidden: bool
    weight: bool
    bias: bool = False
    low: bool = False
    up: bool = False


@dataclass(frozen=True)
class Layer:
    """A linear layer, raw = hidden @ weight.T + bias + low @ up.T, in the type that the products run in.

    `weight` [V, H], `bias` [V] or None; `up` [V, r] or None is the low-rank delta's second factor, `low` [N, r] the
    hidden states after its first (dropout and scaling included)."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    up: torch.Tensor | None = None

    def raw_(self, result: torch.Tensor, hidden: torch.Tensor, low: torch.Tensor | None) -> torch.Tensor:
        """Raw logits [n, V] of hidden states [n, H], written to `result`."""
        if self.bias is None:
            torch.mm(hidden, self.weight.t(), out=result)
        else:
            torch.addmm(self.bias, hidden, self.weight.t(), out=result)
        if self.up is not None:
            assert low is not None
            result.addmm_(low, self.up.t())
        return result


class Gradients:
    """Float32 gradients of a sum over N rows, built chunk by chunk; None for what needs none."""

    def __init__(self, needs: Needs, layer: Layer, rows: int) -> None:
        self.layer = layer
        new = layer.weight.new_empty
        vocabulary, width = layer.weight.shape
        rank = 0 if layer.up is None else layer.up.shape[1]
        shapes = ((rows, width), (vocabulary, width), (vocabulary,), (rows, rank), (vocabulary, rank))
        made = [new(s, dtype=torch.float32) if need else None for need, s in zip(needs, shapes, strict=True)]
        self.hidden, self.weight, self.bias, self.low, self.up = made
        self._sum = product_
        if self.bias is not None:
            self.bias.zero_()

    def __iter__(self) -> Iterator[torch.Tensor | None]:
        """In the order of `Needs`."""
        return iter((self.hidden, self.weight, self.bias, self.low, self.up))

    def add(self, part: slice, slope: torch.Tensor, hidden: torch.Tensor, low: torch.Tensor | None) -> None:
        """Add one chunk. `slope` [n, V] is the gradient over raw logits; rows `part` of N."""
        if self.hidden is not None:
            product_(self.hidden[part], slope, self.layer.weight)
        if self.low is not None and self.layer.up is not None:
            product_(self.low[part], slope, self.layer.up)
        if self.weight is not None:
            self._sum(self.weight, slope.t(), hidden)
        if self.up is not None and low is not None:
            self._sum(self.up, slope.t(), low)
        if self.bias is not None:
            self.bias.add_(slope.sum(0, dtype=torch.float32))
        self._sum = accumulate_
