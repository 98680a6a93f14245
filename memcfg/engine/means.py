"""Means of what an objective logs, over the micro-batches since they were last read, without waiting for the device.

Each process of a run sees its own micro-batches; what is logged is the mean over all of them. Reading is therefore
something that all processes do together."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from memcfg.engine.joining import Group

_group = Group()


def over(group: Group) -> None:
    """From now on means are taken over these processes."""
    global _group
    _group = group


def summed(values: Mapping[str, float]) -> dict[str, float]:
    """Each value summed over all processes; one that a process does not have counts as zero there."""
    parts = _group.all(dict(values))
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


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
        totals = summed({name: float(total) for name, (total, _) in kept.items()})
        counts = summed({name: float(count) for name, (_, count) in kept.items()})
        return {name: total / counts[name] for name, total in totals.items() if counts[name]}
