"""Cutting documents: which end stays, every column alike, and what the ledger hears of it."""

from __future__ import annotations

from typing import Any

import datasets
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memcfg_truncation.hooks import cut, memcfg_prepare_dataset

import memcfg
from memcfg import DataError
from memcfg.engine.ledger import Ledger

pytestmark = pytest.mark.torch


def rows_of(labels: list[list[int]], **columns: Any) -> datasets.Dataset:
    ids = [list(range(1, len(row) + 1)) for row in labels]
    return datasets.Dataset(
        pa.table({"input_ids": pa.array(ids, pa.list_(pa.int32())), "labels": pa.array(labels, pa.list_(pa.int64()))} | columns)
    )  # fmt: skip


def plan_of(limit: int | None, mode: str = "keep_start", **values: Any) -> Any:
    return {"truncation.max_length": limit, "truncation.mode": mode, "packing.strategy": "none"} | {
        name.replace("__", "."): value for name, value in values.items()}  # fmt: skip


def prepared(plan: Any, rows: datasets.Dataset, split: str = "train") -> tuple[datasets.Dataset, Ledger]:
    tokens = sum(map(len, rows["labels"]))
    learned = sum(label != -100 for row in rows["labels"] for label in row[1:])
    ledger = Ledger(tokens_in=tokens, tokens_kept=tokens, tokens_supervised=learned, rows_in=len(rows))
    return memcfg_prepare_dataset(plan, rows, ledger, split), ledger


CUTS = [
    ("keep_start", 3, [[1, 2], [1, 2, 3], [1, 2, 3]], "the first three"),
    ("keep_end", 3, [[1, 2], [1, 2, 3], [3, 4, 5]], "the last three"),
    ("keep_start", 1, [[1], [1], [1]], "the shortest there is"),
    ("keep_end", 9, [[1, 2], [1, 2, 3], [1, 2, 3, 4, 5]], "nothing is that long"),
]


@pytest.mark.parametrize(("mode", "limit", "ids", "because"), CUTS)
def test_what_stays(mode: str, limit: int, ids: list[list[int]], because: str) -> None:
    shorter = cut(rows_of([[1, 2], [1, 2, 3], [1, 2, 3, 4, 5]]), limit, mode)
    assert shorter["input_ids"][:] == shorter["labels"][:] == ids, because


def test_masks_are_cut_and_other_columns_stay() -> None:
    rows = rows_of([[1, 2, 3], [1]], mask=pa.array([[True, False, True], [True]]), name=["a", "b"])
    shorter = cut(rows, 2, "keep_end")
    assert shorter[:] == {"input_ids": [[2, 3], [1]], "labels": [[2, 3], [1]], "mask": [[False, True], [True]],
                          "name": ["a", "b"]}  # fmt: skip
    assert shorter.features == rows.features


def test_a_selection_is_cut_where_it_points() -> None:
    rows = rows_of([[1, 2, 3], [-100] * 5, [7, 8]]).select([2, 0])
    assert cut(rows, 2, "keep_start")["labels"][:] == [[7, 8], [1, 2]]


COMPLETIONS = [[-100] * 6 + [7, 8], [-100, -100, 3], [-100] * 6 + [7]]


def test_a_completion_that_is_cut_off_drops_its_row_and_is_counted() -> None:
    rows, ledger = prepared(plan_of(5), rows_of(COMPLETIONS))
    assert rows["labels"][:] == [[-100, -100, 3]]
    assert (ledger.rows_dropped, dict(ledger.reasons)) == (2, {"no target left": 2})
    assert (ledger.tokens_kept, ledger.tokens_dropped, ledger.tokens_truncated, ledger.balance) == (3, 15, 0, 0)
    assert ledger.tokens_supervised == 1


def test_keep_end_keeps_a_target_in_every_row() -> None:
    rows, ledger = prepared(plan_of(5, "keep_end"), rows_of(COMPLETIONS))
    assert rows["labels"][:] == [[-100, -100, -100, 7, 8], [-100, -100, 3], [-100, -100, -100, -100, 7]]
    assert (ledger.rows_dropped, ledger.tokens_truncated, ledger.tokens_supervised, ledger.balance) == (0, 5, 4, 0)


def test_no_row_left_is_an_error_that_says_what_to_write() -> None:
    with pytest.raises(DataError, match="none of the 1 train rows has a target left") as caught:
        prepared(plan_of(5), rows_of(COMPLETIONS[:1]))
    assert "truncation.mode=keep_end" in str(caught.value)


@pytest.mark.parametrize(("split", "values", "cuts"), [
    ("train", {}, True),
    ("eval", {}, True),
    ("train", {"truncation__max_length": None}, False),
    ("train", {"packing__strategy": "bfd", "packing__eval": False}, False),
    ("eval", {"packing__strategy": "bfd", "packing__eval": False}, True),
    ("eval", {"packing__strategy": "wrapped", "packing__eval": True}, False),
])  # fmt: skip
def test_packing_does_its_own_cutting(split: str, values: dict[str, Any], cuts: bool) -> None:
    rows, _ = prepared(plan_of(2, **values), rows_of([[1, 2, 3]]), split)
    assert (len(rows["labels"][0]) == 2) is cuts


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="keep_middle"):
        cut(rows_of([[1, 2, 3]]), 2, "keep_middle")


@given(
    st.lists(st.lists(st.sampled_from([-100, 5, 6]), max_size=8), min_size=1, max_size=12),
    st.integers(1, 6),
    st.sampled_from(["keep_start", "keep_end"]),
)
@settings(max_examples=60, deadline=None)
def test_the_account_always_balances(labels: list[list[int]], limit: int, mode: str) -> None:
    try:
        rows, ledger = prepared(plan_of(limit, mode), rows_of(labels))
    except DataError:
        return
    assert ledger.balance == 0
    if max(map(len, labels)) > limit:
        assert ledger.tokens_kept == sum(map(len, rows["labels"]))
        assert ledger.tokens_supervised == sum(label != -100 for row in rows["labels"] for label in row[1:])


@pytest.mark.parametrize("free", ["on", "off"])
def test_the_length_holds_with_and_without_padding(free: str) -> None:
    found = memcfg.resolve([f"padding_free={free}", "truncation.max_length=8"])
    assert "truncation" in found.active
    rows, _ = prepared(plan_of(8, padding_free__enabled=free == "on"), rows_of([[1] * 5, [1] * 20]))
    assert [len(row) for row in rows["input_ids"]] == [5, 8]
