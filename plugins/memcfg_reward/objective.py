"""A scalar for each completion, learned from pairs (Bradley-Terry)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from memcfg.batch import Attention, Batch, TokenLoss
from memcfg.engine import documents
from memcfg.engine.means import Means

Tensor = torch.Tensor
MARGIN = "margin"
"""Column of prepared rows and field of a batch: by how much the better completion is better."""


class RankedPairs:
    """Documents 2i and 2i + 1 of a batch are the better and the worse completion of pair i. A document's reward is the
    scalar head's value at its last token, found by its place: padding may have the id of the end-of-text token.

    `center` weighs the square of the sum of a pair's rewards, which pulls their mean to zero
    (https://arxiv.org/abs/2312.09244)."""

    def __init__(self, center: float | None = None) -> None:
        self.center = center
        self._attention: Attention | None = None
        self._means = Means()

    def bind(self, loss: TokenLoss | None, attention: Attention) -> None:
        """The attention, given once; there is no token loss."""
        self._attention = attention

    def count(self, batch: Batch) -> Tensor:
        """Pairs of which both completions are to be judged: int64 scalar. A batch whose labels are masked counts none."""
        return _counted(batch).sum()

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """Sum of the loss over the pairs: float32 scalar with gradient."""
        better, worse = self.rewards(model, batch).view(-1, 2).unbind(1)
        margin = batch.fields.get(MARGIN)
        distance = better - worse
        each = -logsigmoid(distance if margin is None else distance - margin.view(-1, 2)[:, 0].to(distance))
        if self.center is not None:
            each = each + self.center * (better + worse).square()
        counted = _counted(batch)
        self._log(model.training, better.detach(), worse.detach(), counted)
        return torch.where(counted, each, torch.zeros_like(each)).sum()

    def rewards(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """The reward of each document: float32 [D] (float64 of a float64 model), with gradient."""
        if self._attention is None:
            raise RuntimeError("the objective must be bound before it is used")
        last = documents.last_positions(batch)

        def call(head: Any, inner: Any, hidden: Tensor) -> Tensor:
            scores: Tensor = inner.get_output_embeddings()(hidden.flatten(0, 1).index_select(0, last))
            return scores.squeeze(1).to(torch.promote_types(scores.dtype, torch.float32))

        rewards: Tensor = model(**batch.inputs, **self._attention.inputs(batch), head_call=call)
        return rewards

    def metrics(self) -> Mapping[str, float]:
        """Means over pairs of training since the last call: rewards, and how often the better completion has the higher one
        (a tie counts half)."""
        return self._means.read(training=True)

    def held_out(self) -> Mapping[str, float]:
        """The same of held-out pairs."""
        return self._means.read(training=False)

    def _log(self, training: bool, better: Tensor, worse: Tensor, counted: Tensor) -> None:
        values = {
            "rewards/chosen": better, "rewards/rejected": worse, "rewards/margins": better - worse,
            "rewards/accuracies": 0.5 * (1 + torch.sign(better - worse)), "rewards/mean": 0.5 * (better + worse),
        }  # fmt: skip
        self._means.add(training, counted.sum(), {name: (v * counted).sum() for name, v in values.items()})


def _counted(batch: Batch) -> Tensor:
    return documents.targets(batch).view(-1, 2).amin(1) > 0
