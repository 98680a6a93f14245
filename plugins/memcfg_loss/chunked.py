"""The chunked head: exact losses and log-probabilities that never hold more than a few rows of logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from memcfg.batch import TokenLoss
from memcfg.head.layer import OutputLayer, output_layer
from memcfg.head.linear import LinearHead
from memcfg.head.targets import Targets, supervised
from memcfg.head.transform import HeadTransform
from memcfg_loss.fused.autograd import logprobs, loss_sum, statistics_of
from memcfg_loss.fused.score import Score


class TokenStatistics(NamedTuple):
    """Of each target, float32 [B, L] each, zero where there is none: log-probability; entropy of the distribution that it
    was drawn from, in nats; 1.0 where it is the likeliest token (the first of equally likely ones)."""

    logp: torch.Tensor
    entropy: torch.Tensor
    hit: torch.Tensor


@dataclass(frozen=True)
class ChunkedHead(LinearHead):
    """A head that keeps `budget` bytes of logits alive at once; None leaves the size to the kernel.

    `transform` is what the model does to its logits. `device` is the plan's device type. `kernel` says what works on the
    rows: `torch` or `triton`."""

    transform: HeadTransform
    budget: int | None
    device: str = "cpu"
    kernel: str = "torch"

    def summed(self, layer: OutputLayer, hidden: torch.Tensor, targets: Targets, loss: TokenLoss) -> torch.Tensor:
        return loss_sum(score=self.score(self.transform, loss), **_operands(layer, hidden, targets))

    def scored(self, layer: OutputLayer, hidden: torch.Tensor, targets: Targets, temperature: float) -> torch.Tensor:
        score = self.score(self.transform.tempered(temperature))
        return logprobs(score=score, **_operands(layer, hidden, targets))

    @torch.no_grad()
    def statistics(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0
    ) -> TokenStatistics:
        """What training does not need, for those who ask: it costs one more product of hidden states and weight."""
        layer = output_layer(model)
        targets = supervised(labels, layer.vocabulary)
        if not len(targets):
            return TokenStatistics(*hidden.new_zeros(3, *labels.shape, dtype=torch.float32))
        score = self.score(self.transform.tempered(temperature))
        found = statistics_of(score=score, **_operands(layer, hidden, targets))
        return TokenStatistics(*(targets.place(values, labels) for values in found))

    def score(self, transform: HeadTransform, loss: TokenLoss | None = None) -> Score:
        return Score(transform, self.kernel, self.device, loss, self.budget)

    def rows(self, vocabulary: int, itemsize: int = 4) -> int:
        """How many positions' logits fit into the budget. Raises `RunError` where not even one does."""
        return self.score(self.transform).limit(vocabulary, itemsize, trained=True, width=0)

    def describe(self) -> str:
        size = "chunks that suit the products" if self.budget is None else f"chunks of at most {self.budget >> 20} MiB"
        return f"{size}, {self.transform.describe()}"


def _operands(layer: OutputLayer, hidden: torch.Tensor, targets: Targets) -> dict[str, Any]:
    """What the functions on rows take: a target is predicted from the position before it."""
    flat = hidden.reshape(-1, hidden.shape[-1])
    return {
        "hidden": flat, "weight": layer.weight, "bias": layer.bias, "low": layer.low(flat), "up": layer.up(),
        "ids": targets.ids, "at": targets.sources,
    }  # fmt: skip
