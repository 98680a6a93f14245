"""Accelerators by name, for `assume.device=h100`: what rules and the memory planner ask of a card one does not have.

`memory` is what the driver reports as total (from published `nvidia-smi` listings, rounded down to a MiB), not the
number on the box.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Card(NamedTuple):
    """`capability` is the CUDA compute capability times ten; `memory` is in bytes."""

    capability: int
    memory: int


MIB: Final = 1024**2

CARDS: Final[dict[str, Card]] = {
    "a10": Card(86, 23028 * MIB),
    "a100": Card(80, 81920 * MIB),
    "a100-40g": Card(80, 40960 * MIB),
    "a6000": Card(86, 49140 * MIB),
    "b200": Card(100, 183359 * MIB),
    "h100": Card(90, 81559 * MIB),
    "h200": Card(90, 143771 * MIB),
    "l4": Card(89, 23034 * MIB),
    "l40s": Card(89, 46068 * MIB),
    "rtx3090": Card(86, 24576 * MIB),
    "rtx4090": Card(89, 24564 * MIB),
    "rtx5090": Card(120, 32607 * MIB),
    "t4": Card(75, 15360 * MIB),
    "v100": Card(70, 32768 * MIB),
}
