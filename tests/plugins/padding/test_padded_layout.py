"""The padded layout: a row of the data is a row of the batch."""

import pytest
import torch
from memcfg_padding.hooks import PaddedLayout

from memcfg.batch import IGNORE, Documents
from memcfg.engine.layout import Paper

pytestmark = pytest.mark.torch


def documents(*ids, rows=None) -> Documents:
    tensors = [torch.tensor(x) for x in ids]
    return Documents(tensors, [x.clone() for x in tensors], rows or [[i] for i in range(len(ids))])


def test_rows_are_padded_to_the_longest():
    batch = PaddedLayout(Paper(0))(documents([1, 2, 3], [4, 5]))
    assert batch.input_ids.tolist() == [[1, 2, 3], [4, 5, 0]]
    assert batch.labels.tolist() == [[IGNORE, 2, 3], [IGNORE, 5, IGNORE]]
    assert (batch.document_ids >= 0).long().tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.layout == "padded"


def test_an_end_token_that_also_pads_stays_a_target():
    batch = PaddedLayout(Paper(2))(documents([1, 3, 2], [1, 2]))
    assert batch.labels.tolist() == [[IGNORE, 3, 2], [IGNORE, 2, IGNORE]]


def test_documents_that_share_a_row_of_the_data_are_one_sequence():
    batch = PaddedLayout(Paper(0))(documents([1, 2], [3, 4, 5], [6], rows=[[0, 1], [2]]))
    assert batch.position_ids[0].tolist() == [0, 1, 2, 3, 4]
    assert batch.lengths == [5, 1]
