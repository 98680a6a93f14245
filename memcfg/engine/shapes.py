"""What training saw of the data's shape: how long documents were, how rows were filled, how the first rows look.

`batches.json` in the run folder:

    steps, micro_batches, rows, documents, tokens, positions
    bins        [[first length, last length, documents, tokens], ...]
    filled      rows by the share of them that holds tokens, in `FILLS` equal parts from empty to full
    first       [[width, [length of each document]], ...]: rows of the first step, in order, padding not told
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from memcfg.engine.memory import rows_of
from memcfg.histogram import histogram

if TYPE_CHECKING:
    from memcfg.batch import Batch

FILLS: Final = 20
FIRST: Final = 32
"""Rows that are kept as they are."""


class Shapes:
    """Counts over the micro-batches that this process trained on. `add` takes them before they go to the device."""

    def __init__(self) -> None:
        self.steps, self.micro_batches, self.positions = 0, 0, 0
        self._lengths: Counter[int] = Counter()
        self._filled = np.zeros(FILLS, np.int64)
        self._first: list[tuple[int, list[int]]] = []

    def add(self, micro_batches: Iterable[Batch]) -> None:
        """Count one optimizer step."""
        for batch in micro_batches:
            self.micro_batches += 1
            self.positions += batch.input_ids.numel()
            self._lengths.update(batch.lengths)
            width = batch.input_ids.shape[1]
            tokens = (batch.document_ids.numpy() >= 0).sum(1)
            parts = np.minimum(tokens * FILLS // max(1, width), FILLS - 1)
            self._filled += np.bincount(parts, minlength=FILLS)
            if self.steps == 0 and len(self._first) < FIRST:
                self._first += [(width, row) for row in rows_of(batch)]
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """All counts, as plain data."""
        own = {"steps": self.steps, "micro_batches": self.micro_batches, "positions": self.positions}
        lengths = [[length, count] for length, count in self._lengths.items()]
        first = [[width, row] for width, row in self._first]
        return own | {"lengths": lengths, "filled": self._filled.tolist(), "first": first}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Count on from there."""
        self.steps, self.micro_batches, self.positions = state["steps"], state["micro_batches"], state["positions"]
        self._lengths = Counter(dict(state["lengths"]))
        self._filled = np.array(state["filled"], np.int64)
        self._first = [(width, row) for width, row in state["first"]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `batches.json`."""
        lengths = np.array(sorted(n for n in self._lengths if n > 0), np.int64)
        counts = np.array([self._lengths[int(n)] for n in lengths], np.int64)
        return {
            "steps": self.steps,
            "micro_batches": self.micro_batches,
            "rows": int(self._filled.sum()),
            "documents": int(counts.sum()),
            "tokens": int((lengths * counts).sum()),
            "positions": self.positions,
            "bins": [list(found) for found in histogram(lengths, counts)] if len(lengths) else [],
            "filled": self._filled.tolist(),
            "first": [[width, row] for width, row in self._first[:FIRST]],
        }
