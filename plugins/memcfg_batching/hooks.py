"""Micro-batches of rows of similar length, up to a number of positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memcfg import DataError, Plan, Problem, hookimpl, ragged, rows
from memcfg.batch import Grouping
from memcfg.engine.evidence import Effective

Ints = npt.NDArray[np.int64]

WINDOW = 64
"""Micro-batches' worth of rows that are sorted together: enough for little padding, few enough for a varied order."""


@hookimpl
def memcfg_grouping(plan: Plan, grouping: Grouping | None) -> Grouping:
    """Rows in groups of at most `batching.tokens` positions."""
    flat = plan.get("batch.layout") == "flat"
    return TokenBudget(plan["batching.tokens"], plan.get("padding.multiple_of") or 1, flat)


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The budget, from the largest micro-batch of the first step."""
    if not run.first:
        return found
    largest = max(batch.input_ids.numel() for batch in run.first)
    held = largest <= plan["batching.tokens"] and run.grouping is not None
    seen = f"{len(run.first)} micro-batches of the first step, the largest of {largest} positions"
    mode = Effective("batching.mode", "tokens" if held else "rows", seen)
    return [*found, mode, Effective("batching.tokens", plan["batching.tokens"] if held else largest, seen)]


@dataclass(frozen=True)
class TokenBudget:
    """Groups of rows that take at most `tokens` positions with their padding: documents times the longest, rounded up to a
    multiple; on a flat layout just their tokens. The row order is sorted by length within windows; the group with the most
    positions comes first, so that memory that does not suffice shows at once, and the others in an order that the row order
    decides."""

    tokens: int
    multiple: int = 1
    flat: bool = False
    _known: dict[int, tuple[Any, Shapes]] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, order: Sequence[int], rows: Any) -> list[Sequence[int]]:
        if not len(order):
            return []
        shapes = self._shapes(rows)
        self._refuse(shapes)
        chosen = np.asarray(order, np.int64)
        groups = [group for window in self._windows(chosen, shapes) for group in self._filled(window, shapes)]
        sizes = [self._positions(shapes, group) for group in groups]
        first = int(np.argmax(sizes))
        others = np.random.default_rng(chosen[:WINDOW]).permutation(np.delete(np.arange(len(groups)), first))
        return [groups[first], *(groups[i] for i in others)]

    def _shapes(self, rows: Any) -> Shapes:
        if id(rows) not in self._known:
            self._known[id(rows)] = (rows, shapes_of(rows))
        return self._known[id(rows)][1]

    def _refuse(self, shapes: Shapes) -> None:
        """Raise `DataError` for a row that no micro-batch can hold."""
        alone = self._cost(shapes.documents, shapes.longest, shapes.tokens)
        if (alone > self.tokens).any():
            row = int(np.argmax(alone))
            text = f"row {row} takes {alone[row]} positions, more than a micro-batch may have ({self.tokens})"
            fix = f"batching.tokens={alone[row]}, or a `truncation.max_length` that fits"
            raise DataError(Problem(text, "batching.tokens", fix=fix))

    def _windows(self, order: Ints, shapes: Shapes) -> Iterator[Ints]:
        """Consecutive parts of the order, each sorted longest first."""
        ends = np.cumsum(shapes.documents[order] * shapes.longest[order]) // (WINDOW * self.tokens)
        for part in np.split(order, np.flatnonzero(np.diff(ends)) + 1):
            yield part[np.argsort(-shapes.longest[part], kind="stable")]

    def _filled(self, window: Ints, shapes: Shapes) -> Iterator[list[int]]:
        """Groups of neighbours in the window, each as large as fits."""
        group: list[int] = []
        documents = longest = tokens = 0
        facts = (shapes.documents[window].tolist(), shapes.longest[window].tolist(), shapes.tokens[window].tolist())
        for row, *more in zip(window.tolist(), *facts, strict=True):
            grown = (documents + more[0], max(longest, more[1]), tokens + more[2])
            if group and self._cost(*grown) > self.tokens:
                yield group
                group, grown = [], (more[0], more[1], more[2])
            group.append(row)
            documents, longest, tokens = grown
        yield group

    def _positions(self, shapes: Shapes, group: list[int]) -> int:
        return int(self._cost(shapes.documents[group].sum(), shapes.longest[group].max(), shapes.tokens[group].sum()))

    def _cost(self, documents: Any, longest: Any, tokens: Any) -> Any:
        """Positions of a micro-batch of so many documents and tokens; of one or, as arrays, of several."""
        if self.flat:
            return -(-tokens // self.multiple) * self.multiple
        return documents * (-(-longest // self.multiple) * self.multiple)


@dataclass(frozen=True)
class Shapes:
    """Of each row: how many documents it has, tokens in the longest, tokens in all. Arrays int64 [N]."""

    documents: Ints
    longest: Ints
    tokens: Ints


def shapes_of(prepared: Any) -> Shapes:
    """The shapes of prepared rows."""
    tokens = rows.lengths(prepared)
    if "seq_lengths" not in prepared.column_names:
        return Shapes(np.ones_like(tokens), tokens, tokens)
    column = ragged.of(prepared, ["seq_lengths"])["seq_lengths"]
    counts = column.lengths
    sizes = column.gather(np.arange(len(counts)), np.zeros_like(counts), counts).to_numpy().astype(np.int64)
    longest = np.zeros_like(counts)
    full = counts > 0
    longest[full] = np.maximum.reduceat(sizes, (np.cumsum(counts) - counts)[full])
    return Shapes(counts, longest, tokens)
