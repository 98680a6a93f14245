"""How many rows of logits are alive at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from memcfg import Problem, RunError
from memcfg_loss.fused.ops import padded

MIB = 1 << 20
TILE = 256
"""Rows of two neighbouring tiles of the matrix unit, which works on pairs: chunks of many rows are cut to a multiple."""
FROZEN_MIB = 320
TRAINED_MIB = 640


@dataclass(frozen=True)
class Chunks:
    """`rows` rows of `columns` logits at a time, in one buffer."""

    rows: int
    columns: int

    def buffer(self, total: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        whole = torch.empty(min(self.rows, total), padded(self.columns), dtype=dtype, device=device)
        whole[:, self.columns :].zero_()
        return whole[:, : self.columns]

    def parts(self, total: int) -> Iterator[slice]:
        for start in range(0, total, self.rows):
            yield slice(start, min(start + self.rows, total))


def fitting(budget: int, total: int, columns: int, itemsize: int) -> Chunks:
    """The largest chunks within `budget` bytes, evened out over `total` rows. Raises `RunError` if no row fits."""
    row = padded(columns) * itemsize
    rows = budget // row
    if rows < 1:
        raise RunError(
            Problem(
                f"{budget / MIB:g} MiB hold no row of {columns:,} logits of {itemsize} bytes",
                key="loss.chunk_mib",
                fix=f"set `loss.chunk_mib={-(-row // MIB)}` or more",
            )
        )
    if rows >= TILE:
        rows -= rows % TILE
        even = -(-total // max(1, -(-total // rows)))
        rows = min(rows, -(-even // TILE) * TILE)
    return Chunks(max(1, min(rows, total)), columns)


def preferred(weight: torch.Tensor, trained: bool) -> int:
    """Bytes for a chunk when the user names none: enough rows that the products run at full rate.

    The backward of a trained head holds the float32 weight gradient and the rounded one side by side; until then the
    room of the latter is free for logits."""
    return max(TRAINED_MIB * MIB, weight.numel() * weight.element_size()) if trained else FROZEN_MIB * MIB
