"""Documents laid into tensors: exact arrays."""

import pytest
import torch

from memcfg import RunError
from memcfg.batch import IGNORE, Documents
from memcfg.engine.layout import Paper, joined, lay

pytestmark = pytest.mark.torch


def documents(lengths, rows=None) -> Documents:
    """Document i of length n is [100i, 100i + 1, ...], counting from 1."""
    ids = [torch.arange(100 * i, 100 * i + n) for i, n in enumerate(lengths, 1)]
    return Documents(ids, [x.clone() for x in ids], rows or [[i] for i in range(len(ids))])


@pytest.mark.parametrize(
    ("lengths", "positions"),
    [
        ((4, 3, 5), [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4]),
        ((3, 1, 4), [0, 1, 2, 0, 0, 1, 2, 3]),
        ((1, 1, 1), [0, 0, 0]),
        ((2, 1, 1, 3), [0, 1, 0, 0, 0, 1, 2]),
    ],
)
def test_positions_start_anew_with_each_document(lengths, positions):
    batch = lay(documents(lengths), [[*range(len(lengths))]], "rows", Paper(0))
    assert batch.position_ids.tolist() == [positions]
    assert batch.lengths == list(lengths)
    assert batch.document_ids[0].bincount().tolist() == list(lengths)


def test_the_first_token_of_a_document_is_no_target():
    batch = lay(documents((3, 1, 4)), [[0, 1, 2]], "rows", Paper(0))
    assert [i for i, label in enumerate(batch.labels[0].tolist()) if label == IGNORE] == [0, 3, 4]
    assert batch.labels[0].tolist() == [IGNORE, 101, 102, IGNORE, IGNORE, 301, 302, 303]


def test_padding_lies_on_the_right_and_belongs_to_nobody():
    batch = lay(documents((3, 1, 4, 2)), [[0, 1], [2], [3]], "rows", Paper(9, multiple_of=4))
    assert batch.input_ids.tolist() == [[100, 101, 102, 200], [300, 301, 302, 303], [400, 401, 9, 9]]
    assert batch.document_ids.tolist() == [[0, 0, 0, 1], [2, 2, 2, 2], [3, 3, -1, -1]]
    assert batch.labels[2].tolist() == [IGNORE, 401, IGNORE, IGNORE]
    assert batch.position_ids[2].tolist() == [0, 1, 2, 3], "padding goes on from the last document"


@pytest.mark.parametrize(("multiple", "width"), [(None, 5), (1, 5), (4, 8), (5, 5), (64, 64)])
def test_widths_are_rounded_up(multiple, width):
    assert lay(documents((5, 2)), [[0], [1]], "padded", Paper(0, multiple)).input_ids.shape == (2, width)


def test_no_position_exceeds_what_a_document_may_have():
    batch = lay(documents((3,)), [[0]], "padded", Paper(0, multiple_of=8, max_length=4))
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 3, 3, 3, 3]]


@pytest.mark.parametrize(
    ("lengths", "limit", "message"),
    [((3, 9), 8, "9 tokens reached the model, the limit is 8"), ((3, 0), None, "empty document"), ((), None, "empty")],
)
def test_a_document_of_a_wrong_length_stops_the_run(lengths, limit, message):
    with pytest.raises(RunError, match=message):
        lay(documents(lengths), [[*range(len(lengths))]], "rows", Paper(0, max_length=limit))


def test_joined_rows_are_one_document_each():
    whole = joined(documents((2, 3, 1), rows=[[0, 1], [2]]))
    assert [ids.tolist() for ids in whole.input_ids] == [[100, 101, 200, 201, 202], [300]]
    batch = lay(whole, whole.rows, "padded", Paper(0))
    assert batch.position_ids[0].tolist() == [0, 1, 2, 3, 4]
    assert batch.labels[0].tolist() == [IGNORE, 101, 200, 201, 202], "the stream goes on over the seam"
