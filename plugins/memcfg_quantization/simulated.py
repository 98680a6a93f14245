"""What bitsandbytes' products with packed weights are made of on a GPU, for the memory simulator.

To torch each of them is one operation. What it makes on its way to the result (the weights unpacked, the products as whole
numbers) is hidden in it, and is here made of operations that can be seen: those of its CUDA backend (bitsandbytes 0.50,
backends/cuda/ops.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import bitsandbytes  # noqa: F401 (defines the operations)
import torch
from torch.utils.flop_counter import flop_registry, mm_flop, register_flop_formula

Tensor = torch.Tensor
ops: Any = torch.ops.bitsandbytes

FEW_ROWS: Final = 4
"""Up to so many rows a kernel multiplies with the packed weights themselves. On some cards it does so with up to 1,536; those
are taken to unpack, which needs more."""
SCALES_BLOCK: Final = 256
"""Scales that share one, where they are quantised as well."""


def stand_ins() -> dict[str, Any]:
    """The products that hide something in this release of bitsandbytes, by where they are."""
    _count(ops.int8_linear_matmul)
    found = {"gemm_4bit": FourBits, "int8_scaled_mm": EightBits, "quantize_4bit": Packing}
    return {f"torch:ops.bitsandbytes.{name}": kind() for name, kind in found.items() if hasattr(ops, name)}


class FourBits:
    """Rows [..., K] times packed weights of shape [N, K]."""

    def __init__(self) -> None:
        self._plain: Any = ops.gemm_4bit

    def default(
        self, rows: Tensor, packed: Tensor, shape: Sequence[int], scales: Tensor, block: int, kind: str, **more: Any
    ) -> Tensor:
        if not rows.is_meta or rows.numel() // rows.shape[-1] <= FEW_ROWS:
            return self._plain.default(rows, packed, shape, scales, block, kind, **more)  # type: ignore[no-any-return]
        if (small := more.get("absmax_8bit")) is not None:
            large = ops.dequantize_blockwise.default(small, scales, more["absmax_code"], SCALES_BLOCK, torch.float32)
            scales = large + more["absmax_offset"]
        weight = ops.dequantize_4bit.default(packed, scales, block, kind, shape, rows.dtype)
        return torch.nn.functional.linear(rows, weight, more.get("bias"))


class Packing:
    """A weight and its scales, which come first: in which block of memory each comes to lie depends on it."""

    def __init__(self) -> None:
        self._plain: Any = ops.quantize_4bit

    def default(self, weight: Tensor, block: int, kind: str, storage: torch.dtype) -> tuple[Tensor, Tensor]:
        if not weight.is_meta:
            return self._plain.default(weight, block, kind, storage)  # type: ignore[no-any-return]
        scales = torch.empty(-(-weight.numel() // block), dtype=torch.float32, device=weight.device)
        size = (weight.numel() + 1) // (2 * storage.itemsize)
        return torch.empty((size, 1), dtype=storage, device=weight.device), scales


class EightBits:
    """Rows [..., K] times weights [N, K], both of eight bits with scales."""

    def __init__(self) -> None:
        self._plain: Any = ops.int8_scaled_mm

    def default(
        self, rows: Tensor, weight: Tensor, row_scales: Tensor, scales: Tensor, bias: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:  # fmt: skip
        if not rows.is_meta:
            return self._plain.default(rows, weight, row_scales, scales, bias=bias, dtype=dtype)  # type: ignore[no-any-return]
        whole = ops.int8_linear_matmul.default(rows, weight)
        half = ops.int8_mm_dequant.default(whole, row_scales, scales, dtype=torch.float16)
        if bias is not None and bias.dtype != torch.float16:
            half.add_(bias)
        return half.to(dtype or torch.float16)  # type: ignore[no-any-return]


def _count(product: Any) -> None:
    """Let the simulator's clock know how many operations a product is: its second factor comes transposed."""
    if product not in flop_registry:
        register_flop_formula(product)(_transposed)


def _transposed(rows: Any, weight: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return mm_flop(rows, (weight[1], weight[0]))  # type: ignore[no-any-return]
