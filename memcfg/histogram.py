"""Lengths in bins that widen with the length, so that short and long documents both show."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

BINS: Final = 24

Bin = tuple[int, int, int, int]
"""First length, last length, documents, tokens."""


def histogram(lengths: npt.NDArray[np.int64], counts: npt.NDArray[np.int64] | None = None) -> list[Bin]:
    """Documents and tokens by length, at most `BINS` bins on a scale of ratios. `lengths` [N] are positive and N is at
    least 1; `counts` [N] says how many documents there are of each (one where it is left out)."""
    many: Any = np.ones_like(lengths) if counts is None else counts
    low, high = max(1, int(lengths.min())), int(lengths.max())
    edges = np.unique(np.round(np.geomspace(low, high + 1, BINS + 1)).astype(np.int64))
    if len(edges) < 2:
        edges = np.array([low, high + 1])
    edges[0] = min(low, int(lengths.min()))
    documents, _ = np.histogram(lengths, edges, weights=many)
    tokens, _ = np.histogram(lengths, edges, weights=lengths * many)
    # numpy's last bin holds its right edge, which is one past the longest document
    ends = edges[1:] - 1
    return [(int(a), int(b), int(d), int(t)) for a, b, d, t in zip(edges, ends, documents, tokens, strict=False)]
