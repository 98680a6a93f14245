"""The chunked head: exact losses and log-probabilities that never hold more than a few rows of logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from memcfg.batch import TokenLoss
from memcfg.head.layer import OutputLayer, output_layer
from memcfg.head.linear import LinearHead
from memcfg.head.targets import Targets, nothing, supervised
from memcfg.head.transform import HeadTransform
from memcfg_loss.fused.autograd import compute_dtype, distributions, logprobs, loss_sum, statistics_of
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
    rows: `torch` or `triton`. With `float32` weight, hidden states, logits and their gradients are float32 here, whatever the
    model's type; the parameters and the gradients that they are given stay what they are."""

    transform: HeadTransform
    budget: int | None
    device: str = "cpu"
    kernel: str = "torch"
    float32: bool = False

    def summed(self, layer: OutputLayer, hidden: torch.Tensor, targets: Targets, loss: TokenLoss) -> torch.Tensor:
        return loss_sum(score=self.score(self.transform, loss), **_operands(layer, hidden, targets))

    def scored(self, layer: OutputLayer, hidden: torch.Tensor, targets: Targets, temperature: float) -> torch.Tensor:
        score = self.score(self.transform.tempered(temperature))
        return logprobs(score=score, **_operands(layer, hidden, targets))

    def distributions(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0, *,
        shifted: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """See `memcfg.batch.Informed`."""
        layer = output_layer(model)
        targets = supervised(labels, layer.vocabulary, shifted=shifted)
        if not len(targets):
            zero = hidden.new_zeros(labels.shape, dtype=torch.float32) + nothing(hidden, *layer.parameters())
            return zero, zero
        score = self.score(self.transform.tempered(temperature))
        logp, entropy = distributions(score=score, **_operands(layer, hidden, targets))
        return targets.place(logp, labels), targets.place(entropy, labels)

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
        return Score(transform, self.kernel, self.device, loss, self.budget, self.float32)

    def rows(self, vocabulary: int, itemsize: int = 4) -> int:
        """How many positions' logits fit into the budget. Raises `RunError` where not even one does."""
        return self.score(self.transform).limit(vocabulary, itemsize, trained=True, width=0)

    def dtype(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.dtype:
        """The type that logits are computed in."""
        return compute_dtype(hidden, weight, self.score(self.transform))

    def describe(self) -> str:
        size = "chunks that suit the products" if self.budget is None else f"chunks of at most {self.budget >> 20} MiB"
        return f"{size}, {self.transform.describe()}{', in float32' if self.float32 else ''}"


def _operands(layer: OutputLayer, hidden: torch.Tensor, targets: Targets) -> dict[str, Any]:
    """What the functions on rows take: a target is predicted from the position before it."""
    flat = hidden.reshape(-1, hidden.shape[-1])
    return {
        "hidden": flat, "weight": layer.weight, "bias": layer.bias, "low": layer.low(flat), "up": layer.up(),
        "ids": targets.ids, "at": targets.sources,
    }  # fmt: skip
