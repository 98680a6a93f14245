"""The peak memory that a run really used, and the micro-batch that it took."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memcfg.batch import Batch, Documents, Layout
    from memcfg.rollouts import Sample


class Largest:
    """A layout that remembers the largest micro-batch it has laid: `lengths` are the documents of each of its rows."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lengths: list[list[int]] = []
        self._positions = 0

    def __call__(self, documents: Documents) -> Batch:
        batch = self.layout(documents)
        if batch.input_ids.numel() > self._positions:
            self._positions, self.lengths = batch.input_ids.numel(), rows_of(batch)
        return batch


class LargestPortion:
    """The most that was sampled at a time: `lengths` are prompt and completion of each completion, in their order."""

    def __init__(self) -> None:
        self._largest: list[list[int]] = []
        self._open: list[list[list[int]]] = []

    @property
    def lengths(self) -> list[list[int]]:
        """While completions are sampled nobody knows where they end: then as long as they may be."""
        return max([self._largest, *self._open], key=_positions)

    def begins(self, portions: Sequence[Sequence[Sequence[int]]], limit: int) -> None:
        """These prompts are completed now."""
        self._open = [[[len(prompt), limit] for prompt in portion] for portion in portions]

    def ends(self, sampled: Sequence[Sequence[Sample]]) -> None:
        """With these completions."""
        for portion, samples in zip(self._open, sampled, strict=True):
            found = [[prompt, len(sample.ids)] for (prompt, _), sample in zip(portion, samples, strict=True)]
            self._largest = max(self._largest, found, key=_positions)
        self._open = []


def _positions(lengths: Sequence[Sequence[int]]) -> int:
    """What a portion takes while it is sampled, padded."""
    return len(lengths) * (max(p for p, _ in lengths) + max(c for _, c in lengths)) if lengths else 0


def rows_of(batch: Batch) -> list[list[int]]:
    """The lengths of the documents in each row of a micro-batch."""
    rows: list[list[int]] = []
    for owners in batch.document_ids:
        documents, counts = owners.unique_consecutive(return_counts=True)
        rows.append([int(n) for d, n in zip(documents, counts, strict=True) if d >= 0])
    return rows


def reset_peak(device: str) -> None:
    """Start the measurement anew, where the platform can."""
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()


def measured(device: str) -> dict[str, Any]:
    """`peak_bytes` and what it is: CUDA's allocated peak since `reset_peak` (and `reserved_bytes`), or on a CPU the
    process's largest resident set since it started, which holds imports and data preparation too."""
    if device == "cuda":
        import torch

        return {
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
            "source": "cuda allocated",
        }
    return {"peak_bytes": _peak_resident(), "source": "resident set of the process"}


class Peak:
    """The most memory that a run took on a GPU, in its steps and between them. Evaluations, checks and checkpoints may need
    more than any step did, of rows that no step had, and a prediction speaks of steps."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._steps = self._between = self._reserved = 0

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """What happens within is no step."""
        self._steps = max(self._steps, self._begin_anew())
        try:
            yield
        finally:
            self._between = max(self._between, self._begin_anew())

    def measured(self) -> dict[str, Any]:
        """As the function `measured`; on a GPU also `step_bytes`, the peak of the steps alone."""
        found = measured(self.device)
        if self.device == "cuda":
            steps, reserved = max(self._steps, found["peak_bytes"]), max(self._reserved, found["reserved_bytes"])
            found |= {"peak_bytes": max(steps, self._between), "step_bytes": steps, "reserved_bytes": reserved}
        return found

    def _begin_anew(self) -> int:
        found = measured(self.device) if self.device == "cuda" else {"peak_bytes": 0, "reserved_bytes": 0}
        self._reserved = max(self._reserved, found["reserved_bytes"])
        reset_peak(self.device)
        return int(found["peak_bytes"])


def room(device: str) -> int | None:
    """Bytes that the allocator of this process may reserve: what it holds and what is free, less where a limit was set;
    None where nothing limits it."""
    if device != "cuda":
        return None
    import torch

    free, total = torch.cuda.mem_get_info()
    return min(free + torch.cuda.memory_reserved(), int(total * torch.cuda.get_per_process_memory_fraction()))


def _peak_resident() -> int:
    try:
        import resource
    except ImportError:  # Windows has no rusage; psutil comes with accelerate
        import psutil

        info = psutil.Process().memory_info()
        return int(getattr(info, "peak_wset", info.rss))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
