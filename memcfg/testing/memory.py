"""How much memory a piece of code needs at its highest."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch.profiler import profile

RANDOM_STATE: Final = 5056
"""Bytes of the CPU's random state, which each checkpointed layer keeps: in host memory, whatever the device."""


class PeakMemory:
    """Measures what is allocated inside it: `with PeakMemory() as peak: ...`, then `peak.bytes`, the most that was in use at
    once beyond what was in use at the beginning.

    On a CPU torch's profiler watches every allocation of a tensor (a dispatch mode would change them); on CUDA the
    allocator's own count is read."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.bytes = 0
        self._profile: Any = None

    def __enter__(self) -> PeakMemory:
        import torch
        from torch.profiler import ProfilerActivity, profile

        gc.collect()
        gc.disable()
        if self.device == "cpu":
            self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True).__enter__()
        else:
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            self._before = torch.cuda.memory_allocated(self.device)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        import torch

        gc.enable()
        if self._profile is not None:
            self._profile.__exit__(kind, error, trace)
            self.bytes = highest(allocations(self._profile))
        else:
            torch.cuda.synchronize(self.device)
            self.bytes = torch.cuda.max_memory_allocated(self.device) - self._before


def allocations(seen: profile) -> list[int]:
    """Sizes of allocations, and of frees as negative numbers, in the order in which they happened."""
    found: list[tuple[int, int]] = []
    stack = list(seen.profiler.kineto_results.experimental_event_tree())  # type: ignore[union-attr]
    while stack:
        event = stack.pop()
        if event.name == "[memory]":
            found.append((event.start_time_ns, event.extra_fields.alloc_size))
        stack.extend(event.children)
    return [size for _, size in sorted(found, key=lambda pair: pair[0]) if abs(size) != RANDOM_STATE]


def highest(changes: Iterable[int]) -> int:
    """The highest of the running sums."""
    live = peak = 0
    for size in changes:
        live += size
        peak = max(peak, live)
    return peak
