"""The chunked head: exact losses and log-probabilities that never hold more than a few rows of logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from memcfg import Problem, RunError
from memcfg.batch import TokenLoss
from memcfg_loss.autograd import ChunkedLogProbs, ChunkedLoss
from memcfg_loss.heads import output_head
from memcfg_loss.sweep import Sweep, compute_dtype
from memcfg_loss.targets import Targets, nothing, supervised
from memcfg_loss.transform import HeadTransform

LOGIT_BYTES = 4
"""Logits of a chunk are float32."""


@dataclass(frozen=True)
class ChunkedHead:
    """A head that keeps `budget` bytes of logits alive at once. `transform` is what the model does to its logits;
    `device` the plan's device type, which decides how the weight gradient adds up."""

    transform: HeadTransform
    budget: int
    device: str = "cpu"

    kernel = "torch"

    def loss_sum(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, loss: TokenLoss
    ) -> torch.Tensor:
        head = output_head(model)
        targets = supervised(labels, head.out_features)
        if not len(targets):
            return nothing(hidden, head.weight, head.bias)
        sweep = self._sweep(head, hidden, targets, self.transform)
        return ChunkedLoss.apply(targets.hidden(hidden), head.weight, head.bias, sweep, loss)

    def logprobs(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0
    ) -> torch.Tensor:
        head = output_head(model)
        targets = supervised(labels, head.out_features)
        if not len(targets):
            return hidden.new_zeros(labels.shape, dtype=torch.float32) + nothing(hidden, head.weight, head.bias)
        sweep = self._sweep(head, hidden, targets, self.transform.tempered(temperature))
        logp = ChunkedLogProbs.apply(targets.hidden(hidden), head.weight, head.bias, sweep)
        return targets.place(logp, labels)

    def rows(self, vocabulary: int) -> int:
        """How many positions fit into the budget. Raises `RunError` where not even one does."""
        row = vocabulary * LOGIT_BYTES
        if self.budget >= row:
            return self.budget // row
        text = (
            f"{self.budget >> 20} MiB do not hold one row of logits over a vocabulary of {vocabulary:,} ({row:,} bytes)"
        )
        raise RunError(Problem(text, key="loss.chunk_mib", fix=f"loss.chunk_mib={-(-row >> 20)}"))

    def describe(self) -> str:
        return f"chunks of at most {self.budget >> 20} MiB, {self.transform.describe()}"

    def _sweep(self, head: torch.nn.Linear, hidden: torch.Tensor, targets: Targets, transform: HeadTransform) -> Sweep:
        dtype = compute_dtype(hidden, head.weight)
        return Sweep(targets.ids, self.rows(head.out_features), transform, dtype, self.device)
