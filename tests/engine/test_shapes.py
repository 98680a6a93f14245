"""What training saw of the data's shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memcfg.batch import Batch
from memcfg.engine.shapes import FILLS, FIRST, Shapes
from memcfg.histogram import histogram

pytestmark = pytest.mark.torch


def batch(*rows: list[int], width: int) -> Batch:
    """Rows of documents of these lengths, padded to `width`."""
    owners, lengths = [], []
    for row in rows:
        ids = [len(lengths) + i for i, size in enumerate(row) for _ in range(size)]
        owners.append(ids + [-1] * (width - len(ids)))
        lengths += row
    document_ids = torch.tensor(owners)
    nothing = torch.zeros_like(document_ids)
    return Batch(nothing, nothing, nothing, document_ids, "rows", lengths)


def test_documents_rows_and_fill_are_counted() -> None:
    shapes = Shapes()
    shapes.add([batch([3, 1], [4], width=4), batch([2], width=4)])
    shapes.add([batch([1], width=10)])
    found = shapes.to_dict()
    assert [found[name] for name in ("steps", "micro_batches", "rows", "documents", "tokens", "positions")] == [
        2,
        3,
        4,
        5,
        11,
        22,
    ]
    assert sum(documents for _, _, documents, _ in found["bins"]) == 5
    assert sum(tokens for *_, tokens in found["bins"]) == 11
    assert len(found["filled"]) == FILLS
    assert {at: rows for at, rows in enumerate(found["filled"]) if rows} == {2: 1, 10: 1, 19: 2}, (
        "10 %, half, and two full"
    )
    assert found["first"] == [[4, [3, 1]], [4, [4]], [4, [2]]], "the rows of the first step alone"


def test_nothing_seen_is_nothing_told() -> None:
    assert Shapes().to_dict()["bins"] == []


def test_only_so_many_rows_are_kept() -> None:
    shapes = Shapes()
    shapes.add([batch(*([1] for _ in range(50)), width=1)])
    assert len(shapes.to_dict()["first"]) == FIRST


def test_counted_lengths_make_the_same_bins_as_each_by_itself() -> None:
    lengths = np.array([1, 1, 5, 5, 5, 90, 700], np.int64)
    distinct, counts = np.unique(lengths, return_counts=True)
    assert histogram(distinct, counts) == histogram(lengths)
