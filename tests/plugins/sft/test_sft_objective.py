"""The collator and the objective of supervised fine-tuning."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_sft.hooks import collate
from memcfg_sft.objective import SupervisedTokens

from memcfg.batch import Batch

pytestmark = pytest.mark.torch


def lists(tensors: list[torch.Tensor]) -> list[list[int]]:
    return [tensor.tolist() for tensor in tensors]


def test_packed_rows_are_split_into_their_documents() -> None:
    row = {"input_ids": [1, 2, 3, 4, 5, 6], "labels": [1, -100, 3, 4, 5, 6], "seq_lengths": [1, 2, 3]}
    documents = collate([row, {"input_ids": [7, 8], "labels": [-100, 8]}])
    assert lists(documents.input_ids) == [[1], [2, 3], [4, 5, 6], [7, 8]]
    assert lists(documents.labels) == [[1], [-100, 3], [4, 5, 6], [-100, 8]]
    assert documents.rows == [[0, 1, 2], [3]]
    assert {t.dtype for t in documents.input_ids + documents.labels} == {torch.int64}


def test_without_labels_every_token_is_a_target() -> None:
    assert lists(collate([{"input_ids": [7, 8]}]).labels) == [[7, 8]]


def test_rows_may_be_arrays_or_tensors() -> None:
    row = {"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([1, 2, 3]), "seq_lengths": torch.tensor([1, 2])}
    assert lists(collate([row]).input_ids) == [[1], [2, 3]]


class Model(torch.nn.Module):
    """Calls the head with hidden states of its own, as the engine's models do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.seen: dict[str, Any] = {}

    def forward(self, *, head_call: Any, **inputs: Any) -> Any:
        self.seen = inputs
        return head_call(Head(), self, self.weight * inputs["input_ids"].float())


class Head:
    """Sums the hidden states at the targets."""

    def loss_sum(self, model: Any, hidden: torch.Tensor, labels: torch.Tensor, loss: Any) -> torch.Tensor:
        assert loss == "the loss"
        return hidden[:, 1:][labels[:, 1:] != -100].sum()


def batch(labels: list[list[int]]) -> Batch:
    ids = torch.arange(1, 1 + 3 * len(labels)).view(-1, 3)
    position = torch.arange(3).expand_as(ids)
    return Batch(ids, torch.tensor(labels), position, torch.zeros_like(ids), "padded", [3] * len(labels))


def objective() -> SupervisedTokens:
    made = SupervisedTokens()
    made.bind("the loss", SimpleNamespace(inputs=lambda b: {"attention_mask": None}))  # type: ignore[arg-type]
    return made


def test_what_counts_are_the_targets_after_the_shift() -> None:
    assert int(objective().count(batch([[9, 2, -100], [-100, -100, 6]]))) == 2


def test_the_sum_over_targets_has_a_gradient() -> None:
    model, made = Model(), objective()
    total = made.loss_sum(model, batch([[-100, 2, 3], [-100, -100, 6]]))
    total.backward()
    assert (total.item(), float(model.weight.grad)) == (11.0, 11.0)
    assert set(model.seen) == {"input_ids", "position_ids", "attention_mask"}


def test_metrics_are_of_training_and_start_anew() -> None:
    model, made = Model(), objective()
    made.loss_sum(model, batch([[-100, 2, 3]]))
    made.loss_sum(model, batch([[-100, -100, 3]]))
    model.eval()
    made.loss_sum(model, batch([[-100, 2, 3]]))
    assert made.metrics() == {"mean_loss": 8 / 3, "targets": 3.0}
    assert made.metrics() == {}
