"""How many rows of logits are alive at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from memcfg import Problem, RunError

MIB: int = 1 << 20
TILE = 256
"""Rows of two neighbouring tiles of the matrix unit, which works on pairs: chunks of many rows are cut to a multiple."""
FROZEN = 320 * MIB
TRAINED = 640 * MIB
"""Bytes of logits with which the products run at full rate (measured on an H200)."""


@dataclass(frozen=True)
class Chunks:
    """`rows` rows of `columns` logits at a time, in one buffer whose rows are `width` elements long."""

    rows: int
    columns: int
    width: int

    def buffer(self, weight: torch.Tensor) -> torch.Tensor:
        """Room for a chunk, in the type and on the device of `weight`."""
        whole = weight.new_empty(self.rows, self.width)
        if self.width > self.columns:
            whole[:, self.columns :].zero_()
        return whole[:, : self.columns]

    def parts(self, total: int) -> Iterator[slice]:
        for start in range(0, total, self.rows):
            yield slice(start, min(start + self.rows, total))


def fitting(room: int, row: int, vocabulary: int) -> int:
    """How many rows of `row` bytes fit into `room` bytes. Raises `RunError` if not even one does."""
    if room >= row:
        return room // row
    text = f"{room >> 20} MiB do not hold one row of logits over a vocabulary of {vocabulary:,} ({row:,} bytes)"
    raise RunError(Problem(text, key="loss.chunk_mib", fix=f"loss.chunk_mib={-(-row >> 20)}"))


def evened(limit: int, total: int) -> int:
    """Rows of a chunk: as few chunks as `limit` allows, equal in size but for the matrix unit's tiles."""
    tile = TILE if limit >= TILE else 1
    limit -= limit % tile
    even = -(-total // -(-total // limit))
    return min(limit, -(-even // tile) * tile, total)


def preferred(weight: int, trained: bool) -> int:
    """Bytes for a chunk when the user names none. `weight` are the bytes of the layer's weight.

    The backward of a trained head holds the float32 weight gradient and the rounded one side by side; until then the
    room of the latter is free for logits."""
    return max(TRAINED, weight) if trained else FROZEN
