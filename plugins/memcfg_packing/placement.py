"""A placement: which piece of which document lies where. Made from lengths alone, before any token is touched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memcfg_packing.binning import best_fit

Ints = npt.NDArray[np.int64]

STRATEGIES = ("bfd", "bfd_split", "wrapped")


@dataclass(frozen=True)
class Placement:
    """Pieces in the order in which they lie, row after row: piece `i` is `lengths[i]` tokens of document `documents[i]`
    from its token `starts[i]`; row `r` holds `counts[r]` pieces. `cut` is the number of tokens that no row holds."""

    documents: Ints
    starts: Ints
    lengths: Ints
    counts: Ints
    cut: int

    @property
    def row_lengths(self) -> Ints:
        """Tokens in each row."""
        if not len(self.counts):
            return np.zeros(0, np.int64)
        return np.add.reduceat(self.lengths, np.cumsum(self.counts) - self.counts)

    def pieces(self, first: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Documents, starts and lengths of the pieces `first` to `end`, the second excluded."""
        return self.documents[first:end], self.starts[first:end], self.lengths[first:end]


def place(lengths: Ints, capacity: int, strategy: str, *, keep: str = "start") -> Placement:
    """Where documents of these lengths go in rows of `capacity` tokens; documents of no tokens go nowhere.

    `bfd`: the first `capacity` tokens of each document (with `keep="end"` the last), best fit, longest first.
    `bfd_split`: each document in pieces of `capacity` and a rest, best fit, longest first. `wrapped`: all documents one
    after another, cut into rows."""
    validate(capacity, strategy, keep)
    documents = np.flatnonzero(lengths)
    lengths = np.asarray(lengths, np.int64)[documents]
    if strategy == "bfd":
        kept = np.minimum(lengths, capacity)
        starts = lengths - kept if keep == "end" else np.zeros_like(kept)
        return _best(documents, starts, kept, capacity, cut=int((lengths - kept).sum()))
    if strategy == "bfd_split":
        which, starts, pieces = split(lengths, capacity)
        return _best(documents[which], starts, pieces, capacity, cut=0)
    return _stream(documents, lengths, capacity)


def validate(capacity: int, strategy: str, keep: str) -> None:
    """Raise `ValueError` for an argument that no placement can be made with."""
    if isinstance(capacity, bool) or not isinstance(capacity, (int, np.integer)) or capacity < 1:
        raise ValueError(f"a row must hold a whole number of tokens, at least one, not {capacity!r}")
    if strategy not in STRATEGIES:
        raise ValueError(f"no such strategy: {strategy!r}; there are {', '.join(STRATEGIES)}")
    if keep not in ("start", "end"):
        raise ValueError(f"`keep` is start or end, not {keep!r}")


def split(lengths: Ints, capacity: int) -> tuple[Ints, Ints, Ints]:
    """Every document in pieces of `capacity` and a rest: index of the document, start and length of each piece."""
    pieces = -(-lengths // capacity)
    which = np.repeat(np.arange(len(lengths)), pieces)
    starts = _within(pieces) * capacity
    return which, starts, np.minimum(lengths[which] - starts, capacity)


def _best(documents: Ints, starts: Ints, lengths: Ints, capacity: int, *, cut: int) -> Placement:
    order, counts = best_fit(lengths, capacity)
    return Placement(documents[order], starts[order], lengths[order], counts, cut)


def _stream(documents: Ints, lengths: Ints, capacity: int) -> Placement:
    """One stream, cut both where a document ends and where a row does."""
    ends = np.cumsum(lengths)
    begins = ends - lengths
    first = begins // capacity
    pieces = (ends - 1) // capacity - first + 1
    which = np.repeat(np.arange(len(lengths)), pieces)
    row = first[which] + _within(pieces)
    start = np.maximum(begins[which], row * capacity)
    end = np.minimum(ends[which], (row + 1) * capacity)
    return Placement(documents[which], start - begins[which], end - start, np.bincount(row), 0)


def _within(counts: Ints) -> Ints:
    """0, 1, ... `count` - 1 for each count, one after another."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
