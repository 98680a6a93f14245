"""Which document goes into which row: best fit, longest first, in time that depends on the lengths, not on their number.

Documents are taken longest first (equal ones in their order). Each goes into the open row with the smallest space that
holds it; of several rows with the same space, into the one that got that space first; where none holds it, into a new
row. That is best-fit decreasing; the order of rows is that of their opening.

Documents of one length are placed together. If `s` is the smallest space that holds length `n`, the row at its head
takes `s // n` documents in turn: after the first its own space, still large enough, is the smallest. So a run of rows
with the same space is filled by one division. Rows that share a space are kept as runs of consecutive row numbers
(opened together, moved together), and the spaces that exist as the bits of one integer, in which the smallest that fits
is a shift and the lowest bit set.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def best_fit(lengths: Ints, capacity: int) -> tuple[Ints, Ints]:
    """Place documents of `lengths` (each from 1 to `capacity`) into rows.

    Returns `order`, the documents in the order in which they lie, row after row, and `counts`, how many lie in each
    row: both int64."""
    if not len(lengths):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = _longest_first(lengths, capacity)
    sizes, starts = np.unique(-lengths[order], return_index=True)
    rows = _Rows(capacity)
    for size, count in zip((-sizes).tolist(), np.diff([*starts.tolist(), len(order)]).tolist(), strict=True):
        rows.place(size, count)
    row = rows.assigned()
    return order[np.argsort(row, kind="stable")], np.bincount(row, minlength=rows.opened)


@dataclass
class _Rows:
    """Open rows by their remaining space. A run `(first, end)` is a range of row numbers that share one space."""

    capacity: int
    opened: int = 0
    spaces: int = 0
    """Bit `s` is set where some open row has the space `s`."""
    runs: dict[int, deque[tuple[int, int]]] = field(default_factory=lambda: defaultdict(deque))
    placed: list[tuple[int, int, int]] = field(default_factory=list)
    """(first row, documents, documents in each row) in the order in which documents were placed."""

    def place(self, size: int, count: int) -> None:
        """Place `count` documents of one size."""
        while count:
            first, end, space = self._smallest(size, count)
            each = space // size
            full = min(end - first, count // each)
            self._file(first, first + full, space - each * size, each, full * each)
            count -= full * each
            first += full
            if count and first < end:
                self._file(first, first + 1, space - count * size, count, count)
                count, first = 0, first + 1
            if first < end:
                self._back(first, end, space)

    def assigned(self) -> Ints:
        """The row of each document, in the order in which they were placed."""
        first, count, each = np.array(self.placed, np.int64).T
        begin = np.cumsum(count) - count
        within = np.arange(count.sum()) - np.repeat(begin, count)
        return np.repeat(first, count) + within // np.repeat(each, count)

    def _smallest(self, size: int, count: int) -> tuple[int, int, int]:
        """The first run of the smallest space that holds `size`, or as many new rows as `count` needs."""
        above = self.spaces >> size
        if above:
            space = size + (above & -above).bit_length() - 1
            queue = self.runs[space]
            first, end = queue.popleft()
            if not queue:
                self.spaces &= ~(1 << space)
            return first, end, space
        first = self.opened
        self.opened += -(-count // (self.capacity // size))
        return first, self.opened, self.capacity

    def _file(self, first: int, end: int, space: int, each: int, count: int) -> None:
        """Note `count` documents placed into a run, `each` in a row, and file the run under the space that is left."""
        if end > first:
            self.placed.append((first, count, each))
            if space:
                self.runs[space].append((first, end))
                self.spaces |= 1 << space

    def _back(self, first: int, end: int, space: int) -> None:
        """Put the untouched rest of a run back at the head of its queue."""
        self.runs[space].appendleft((first, end))
        self.spaces |= 1 << space


def _longest_first(lengths: Ints, capacity: int) -> Ints:
    """Indices by falling length, equal lengths in their order. Numpy sorts 16-bit keys by counting."""
    key = capacity - lengths
    return np.argsort(key.astype(np.uint16) if capacity < 1 << 16 else key, kind="stable")
