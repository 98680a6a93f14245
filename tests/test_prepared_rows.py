"""What plugins that prepare data share: ragged columns, counts of targets, and rows in files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memcfg import DataError, arrowfile, ragged, rows
from memcfg.engine.ledger import Ledger

pytestmark = pytest.mark.torch

LISTS = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=12)


@given(LISTS, st.lists(st.integers(0, 12), max_size=3), st.sampled_from([pa.int8(), pa.int64(), pa.float32(), pa.string()]),
       st.data())  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_any_ranges_of_any_chunks_are_gathered(
    values: Any, cuts: list[int], kind: pa.DataType, data: st.DataObject
) -> None:
    typed = [[str(v) if kind == pa.string() else v for v in row] for row in values]
    edges = sorted({0, len(typed), *(c for c in cuts if c < len(typed))})
    chunks = [pa.array(typed[a:b], pa.list_(kind)) for a, b in pairwise(edges)]
    column = ragged.Ragged(pa.chunked_array(chunks, pa.list_(kind)))
    assert column.lengths.tolist() == [len(row) for row in typed]
    picks = data.draw(st.lists(st.integers(0, len(typed) - 1), max_size=8)) if typed else []
    starts = [data.draw(st.integers(0, len(typed[i]))) for i in picks]
    sizes = [data.draw(st.integers(0, len(typed[i]) - s)) for i, s in zip(picks, starts, strict=True)]
    flat = column.gather(*(np.array(x, np.int64) for x in (picks, starts, sizes)))
    assert flat.to_pylist() == [v for i, s, n in zip(picks, starts, sizes, strict=True) for v in typed[i][s : s + n]]


def test_a_column_that_holds_no_lists_is_refused() -> None:
    with pytest.raises(TypeError, match="lists is needed"):
        ragged.Ragged(pa.chunked_array([pa.array([1, 2])]))


def labelled(labels: list[list[int]], **columns: Any) -> datasets.Dataset:
    array = pa.array(labels, pa.list_(pa.int64()))
    return datasets.Dataset(pa.table({"input_ids": array, "labels": array} | columns))


TARGETS = [
    ([[1, 2, 3]], None, [2], "the first token has nothing before it"),
    ([[-100, 2, -100], [], [5]], None, [1, 0, 0], "masked, empty, alone"),
    ([[1, 2, 3, 4, 5]], [[2, 3]], [3], "in a packed row every document has a first token"),
    ([[1, 2], [3, 4, 5]], [[1, 1], [3]], [0, 2], "documents of one token have no target"),
]


@pytest.mark.parametrize(("labels", "sizes", "expected", "because"), TARGETS)
def test_targets_are_counted_after_the_shift(labels: Any, sizes: Any, expected: list[int], because: str) -> None:
    columns = {} if sizes is None else {"seq_lengths": pa.array(sizes, pa.list_(pa.int32()))}
    found = labelled(labels, **columns)
    assert rows.targets(found).tolist() == expected, because
    chunked = pa.concat_tables([found.data.table.slice(i, 1) for i in range(len(labels))])
    assert rows.targets(chunked).tolist() == expected
    assert rows.targets(found.select(range(len(labels) - 1, -1, -1))).tolist() == expected[::-1]


def test_rows_without_a_target_are_dropped_and_accounted_for() -> None:
    ledger = Ledger(tokens_in=6, tokens_kept=6, rows_in=3)
    left = rows.drop_without_targets(labelled([[1, 2, 3], [4], [5, -100]]), ledger, split="train")
    assert left["labels"][:] == [[1, 2, 3]]
    assert (ledger.tokens_kept, ledger.tokens_dropped, ledger.rows_dropped, ledger.balance) == (3, 3, 2, 0)
    with pytest.raises(DataError, match="none of the 1 eval rows") as caught:
        rows.drop_without_targets(labelled([[1]]), ledger, split="eval", fix="do something")
    assert caught.value.problems[0].fix == "do something"


SCHEMA = pa.schema([("a", pa.int64())])


def batches(*, fail: bool = False) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=SCHEMA)
    if fail:
        raise DataError("the third row is bad")
    yield pa.RecordBatch.from_arrays([pa.array([3])], schema=SCHEMA)


def test_rows_are_written_once_and_read_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.arrow"
    assert arrowfile.cached(path) is None
    made = arrowfile.made(path, SCHEMA, batches, fingerprint="f")
    again = arrowfile.cached(path, fingerprint="f")
    assert again is not None
    assert made["a"][:] == again["a"][:] == [1, 2, 3]
    assert again._fingerprint == "f"
    assert [f["filename"] for f in again.cache_files] == [str(path)]


def test_rows_that_cannot_be_made_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="third row"):
        arrowfile.made(tmp_path / "rows.arrow", SCHEMA, lambda: batches(fail=True))
    assert not list(tmp_path.iterdir())


def test_a_full_disk_costs_the_file_and_not_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    made = arrowfile.made(tmp_path / "rows.arrow", SCHEMA, batches)
    assert made["a"][:] == [1, 2, 3]
    assert not list(tmp_path.iterdir())
    assert "No space left on device" in caplog.text
