"""Matrix products of low-precision factors into float32, and the head's gradients that they sum.

On CUDA the products of bf16 and fp16 factors are written in float32 by the matrix unit itself. Rounding each chunk's
product before adding it up would bias training; so would a split reduction in bf16."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch


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

    @property
    def precision(self) -> torch.dtype:
        """The type of everything that adds up."""
        return torch.promote_types(torch.float32, self.weight.dtype)

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
    """Gradients of a sum over N rows in `Layer.precision`, built chunk by chunk; None for what needs none."""

    def __init__(self, needs: Needs, layer: Layer, rows: int, device: str) -> None:
        """`device` is the plan's device type: what runs on storage-less tensors is what would run there."""
        self.layer = layer
        self._on_cuda = device == "cuda" and layer.precision != layer.weight.dtype
        self._first = True
        new = layer.weight.new_empty
        vocabulary, width = layer.weight.shape
        rank = 0 if layer.up is None else layer.up.shape[1]
        shapes = ((rows, width), (vocabulary, width), (vocabulary,), (rows, rank), (vocabulary, rank))
        made = [new(s, dtype=layer.precision) if need else None for need, s in zip(needs, shapes, strict=True)]
        self.hidden, self.weight, self.bias, self.low, self.up = made

    def __iter__(self) -> Iterator[torch.Tensor | None]:
        """In the order of `Needs`."""
        return iter((self.hidden, self.weight, self.bias, self.low, self.up))

    def add(self, part: slice, slope: torch.Tensor, hidden: torch.Tensor, low: torch.Tensor | None) -> None:
        """Add one chunk. `slope` [n, V] is the gradient over raw logits; rows `part` of N."""
        if self.hidden is not None:
            self._write(self.hidden[part], slope, self.layer.weight)
        if self.low is not None and self.layer.up is not None:
            self._write(self.low[part], slope, self.layer.up)
        if self.weight is not None:
            self._add(self.weight, slope.t(), hidden)
        if self.up is not None and low is not None:
            self._add(self.up, slope.t(), low)
        if self.bias is not None:
            summed = slope.sum(0, dtype=self.bias.dtype)
            self.bias.copy_(summed) if self._first else self.bias.add_(summed)
        self._first = False

    def _write(self, result: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
        """`result = left @ right`, of rows that no other chunk has a part in."""
        if left.dtype == result.dtype:
            torch.mm(left, right, out=result)
        elif self._on_cuda:
            torch.mm(left, right, out_dtype=result.dtype, out=result)
        else:
            result.copy_(torch.mm(left, right))

    def _add(self, result: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
        """`result += left @ right`; the first chunk's product is written, so that nothing need be zeroed."""
        if not self._on_cuda:
            left, right = left.to(result.dtype), right.to(result.dtype)
            torch.mm(left, right, out=result) if self._first else result.addmm_(left, right)
        elif self._first:
            torch.mm(left, right, out_dtype=result.dtype, out=result)
        else:
            torch.addmm(result, left, right, out_dtype=result.dtype, out=result)
