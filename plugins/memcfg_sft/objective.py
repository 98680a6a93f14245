"""The loss of supervised fine-tuning: the token loss summed over supervised targets."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from memcfg.batch import IGNORE, Attention, Batch, TokenLoss
from memcfg.engine.means import summed


class SupervisedTokens:
    """Counts supervised targets after the shift by one. `labels` mask the first token of every document already."""

    def __init__(self) -> None:
        self._loss: TokenLoss | None = None
        self._attention: Attention | None = None
        self._sum: torch.Tensor | None = None
        self._targets: torch.Tensor | None = None

    def bind(self, loss: TokenLoss | None, attention: Attention) -> None:
        """The token loss and the attention, given once."""
        self._loss, self._attention = loss, attention

    def count(self, batch: Batch) -> torch.Tensor:
        """Supervised targets: int64 scalar on the batch's device (reading it would wait for the device)."""
        return (batch.labels[:, 1:] != IGNORE).sum()

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Sum of the token loss over the targets: float32 scalar with gradient."""
        if self._loss is None or self._attention is None:
            raise RuntimeError("the objective must be bound before it is used")
        loss, labels = self._loss, batch.labels
        total: torch.Tensor = model(
            **batch.inputs, **self._attention.inputs(batch),
            head_call=lambda head, inner, hidden: head.loss_sum(inner, hidden, labels, loss),
        )  # fmt: skip
        if model.training:
            self._add(total.detach(), self.count(batch))
        return total

    def metrics(self) -> Mapping[str, float]:
        """`mean_loss` over the targets of training since the last call, and how many `targets` there were."""
        if self._sum is None or self._targets is None:
            return {}
        found = summed({"mean_loss": float(self._sum), "targets": float(self._targets)})
        found["mean_loss"] /= max(found["targets"], 1.0)
        self._sum = self._targets = None
        return found

    def _add(self, total: torch.Tensor, targets: torch.Tensor) -> None:
        self._sum = total if self._sum is None else self._sum + total
        self._targets = targets if self._targets is None else self._targets + targets
