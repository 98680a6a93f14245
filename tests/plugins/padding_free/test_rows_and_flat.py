"""Padding-free layouts: which documents lie in which row."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from memcfg_padding_free.hooks import FlatLayout, RowsLayout, first_fit, starts

from memcfg.batch import Documents
from memcfg.engine.layout import Paper

pytestmark = pytest.mark.torch


def documents(lengths, rows=None) -> Documents:
    ids = [torch.full((n,), i) for i, n in enumerate(lengths)]
    return Documents(ids, [x.clone() for x in ids], rows or [[i] for i in range(len(ids))])


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        ((5, 20, 14, 6), [[1], [2, 3], [0]]),
        ((4, 4, 4), [[0], [1], [2]]),
        ((3, 1, 4, 1), [[2], [0, 1], [3]]),
        ((7,), [[0]]),
        ((), []),
    ],
)
def test_the_longest_first_each_into_the_first_row_with_room(lengths, rows):
    assert first_fit(list(lengths)) == rows


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_rows_hold_every_document_once_and_none_is_longer_than_the_longest(lengths):
    rows = first_fit(lengths)
    assert sorted(d for row in rows for d in row) == list(range(len(lengths)))
    assert max(sum(lengths[d] for d in row) for row in rows) == max(lengths)
    assert sum(sum(lengths[d] for d in row) * 2 <= max(lengths) for row in rows) <= 1, (
        "two half-empty rows would be one"
    )


def test_packed_rows_stay_as_packing_made_them():
    batch = RowsLayout(Paper(0))(documents((3, 1, 4), rows=[[0, 1], [2]]))
    assert batch.document_ids.tolist() == [[0, 0, 0, 1], [2, 2, 2, 2]]


def test_single_documents_share_rows():
    batch = RowsLayout(Paper(0))(documents((2, 6, 3, 1)))
    assert batch.document_ids.tolist() == [[1, 1, 1, 1, 1, 1], [2, 2, 2, 0, 0, 3]]
    assert batch.lengths == [6, 3, 2, 1]
    assert starts(batch) == 4


def test_flat_is_one_row_in_the_order_of_the_data():
    batch = FlatLayout(Paper(7, multiple_of=4))(documents((3, 1, 1), rows=[[0, 1], [2]]))
    assert batch.document_ids.tolist() == [[0, 0, 0, 1, 2, -1, -1, -1]]
    assert torch.tensor([0, *batch.lengths]).cumsum(0).tolist() == [0, 3, 4, 5], "one segment a document"
