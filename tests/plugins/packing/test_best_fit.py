"""Which document goes into which row, from lengths alone."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memcfg_packing.binning import best_fit
from memcfg_packing.placement import place


def rows_of(lengths: list[int], capacity: int) -> list[list[int]]:
    """The documents of each row, by index."""
    order, counts = best_fit(np.array(lengths, np.int64), capacity)
    ends = np.cumsum(counts)
    return [order[e - c : e].tolist() for e, c in zip(ends, counts, strict=True)]


def one_by_one(lengths: list[int], capacity: int) -> list[list[int]]:
    """Best-fit decreasing as it is defined: document by document, looking at every open row."""
    spaces: dict[int, deque[int]] = {}
    rows: list[list[int]] = []
    for document in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        size = lengths[document]
        space = min((s for s, queue in spaces.items() if queue and s >= size), default=None)
        if space is None:
            row, space = len(rows), capacity
            rows.append([])
        else:
            row = spaces[space].popleft()
        rows[row].append(document)
        spaces.setdefault(space - size, deque()).append(row)
    return rows


LENGTHS = [
    # capacity, lengths, lengths by row, because
    (8, [7, 5, 3, 2, 6], [[7], [6, 2], [5, 3]], "a power of two"),
    (9, [7, 5, 3, 2, 6], [[7, 2], [6, 3], [5]], "not a power of two"),
    (10, [7, 5, 3, 2, 6], [[7, 3], [6, 2], [5]], "the smallest space that fits is taken"),
    (9, [5, 4, 3, 3, 2, 1], [[5, 4], [3, 3, 2, 1]], "a row is filled before another is opened"),
    (8, [6, 5, 3, 2], [[6, 2], [5, 3]], "two goes where only two fits"),
    (5, [3, 3, 3, 1, 1, 1, 1], [[3, 1, 1], [3, 1, 1], [3]], "a row that was topped up has the smaller space"),
    (4, [4, 4], [[4], [4]], "a full row is never looked at"),
    (1, [1, 1, 1], [[1], [1], [1]], "the smallest row there is"),
    (70_000, [69_999, 1, 40_000, 30_000], [[69_999, 1], [40_000, 30_000]], "a row too long for 16-bit keys"),
    (4, [], [], "nothing to place"),
]


@pytest.mark.parametrize(("capacity", "lengths", "expected", "because"), LENGTHS, ids=[row[3] for row in LENGTHS])
def test_rows_by_length(capacity: int, lengths: list[int], expected: list[list[int]], because: str) -> None:
    assert [[lengths[i] for i in row] for row in rows_of(lengths, capacity)] == expected, because


@given(st.integers(1, 40).flatmap(lambda c: st.tuples(st.just(c), st.lists(st.integers(1, c), max_size=80))))
@settings(max_examples=400, deadline=None)
def test_equals_the_definition(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    assert rows_of(lengths, capacity) == one_by_one(lengths, capacity)


@pytest.mark.parametrize("capacity", range(60, 131, 7))
def test_many_documents_share_rows_at_every_capacity(capacity: int) -> None:
    lengths = np.random.default_rng(capacity).integers(1, 61, 2000).tolist()
    rows = rows_of(lengths, capacity)
    assert sorted(i for row in rows for i in row) == list(range(2000))
    assert max(sum(lengths[i] for i in row) for row in rows) <= capacity
    assert len(lengths) / len(rows) > 1.5


def test_equal_documents_keep_their_order() -> None:
    assert rows_of([2, 2, 2, 2, 2], 4) == [[0, 1], [2, 3], [4]]


def test_a_hundred_thousand_documents_leave_almost_nothing_empty() -> None:
    lengths = np.random.default_rng(0).lognormal(5.5, 1.0, 100_000).astype(np.int64).clip(1, 2048)
    _, counts = best_fit(lengths, 2048)
    assert lengths.sum() / (2048 * len(counts)) >= 0.9998


@given(
    st.lists(st.integers(0, 30), max_size=40),
    st.integers(1, 12),
    st.sampled_from(["bfd", "bfd_split", "wrapped"]),
    st.sampled_from(["start", "end"]),
)
@settings(max_examples=300, deadline=None)
def test_placements_account_for_every_token(lengths: list[int], capacity: int, strategy: str, keep: str) -> None:
    placement = place(np.array(lengths, np.int64), capacity, strategy, keep=keep)
    assert int(placement.lengths.sum()) + placement.cut == sum(lengths)
    assert placement.counts.sum() == len(placement.lengths)
    assert (placement.lengths > 0).all()
    assert (placement.row_lengths <= capacity).all()
    assert strategy == "bfd" or placement.cut == 0
    seen: set[tuple[int, int]] = set()
    for document, start, length in zip(placement.documents, placement.starts, placement.lengths, strict=True):
        tokens = {(int(document), int(start) + i) for i in range(length)}
        assert start >= 0
        assert start + length <= lengths[document]
        assert not tokens & seen
        seen |= tokens


@given(st.lists(st.integers(0, 12), max_size=40))
@settings(max_examples=100, deadline=None)
def test_documents_that_fit_are_packed_alike_by_both_best_fits(lengths: list[int]) -> None:
    one, other = (place(np.array(lengths, np.int64), 12, strategy) for strategy in ("bfd", "bfd_split"))
    for name in ("documents", "starts", "lengths", "counts"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


BAD = [
    (0, "bfd", "start", "at least one"),
    (-3, "bfd", "start", "at least one"),
    (2.5, "bfd", "start", "a whole number"),
    (4, "bfd-requeue", "start", "no such strategy"),
    (4, "bfd", "middle", "`keep` is start or end"),
]


@pytest.mark.parametrize(("capacity", "strategy", "keep", "text"), BAD)
def test_arguments_that_mean_nothing_are_refused(capacity: int, strategy: str, keep: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        place(np.array([3, 4]), capacity, strategy, keep=keep)
