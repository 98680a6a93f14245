"""Means of what an objective logs, over the micro-batches since they were last read, without waiting for the device."""

from __future__ import annotations

from collections.abc import Mapping

import torch


class Means:
    """Sums and counts by name, kept apart for training and for held-out rows."""

    def __init__(self) -> None:
        self._sums: dict[bool, dict[str, tuple[torch.Tensor, torch.Tensor]]] = {True: {}, False: {}}

    def add(self, training: bool, count: torch.Tensor, sums: Mapping[str, torch.Tensor]) -> None:
        """Add sums (scalars) that `count` things (a scalar) make up."""
        kept = self._sums[training]
        for name, value in sums.items():
            so_far = kept.get(name)
            now = (value.detach(), count.detach())
            kept[name] = now if so_far is None else (so_far[0] + now[0], so_far[1] + now[1])

    def read(self, *, training: bool) -> dict[str, float]:
        """The means, which then start anew. What nothing was counted for is left out."""
        kept, self._sums[training] = self._sums[training], {}
        return {name: float(total / count) for name, (total, count) in kept.items() if float(count)}
