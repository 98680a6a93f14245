"""What heads have in common that compute from the output layer's own weight: which positions count, and what to give where
none does."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from memcfg import Problem, RunError
from memcfg.batch import TokenLoss
from memcfg.head.layer import WHOLE_HEAD, OutputLayer, output_layer
from memcfg.head.targets import Targets, nothing, supervised
from memcfg.head.transform import HeadTransform

Tensor = torch.Tensor
OTHER = "loss.kernel=torch"


class LinearHead(ABC):
    """A `memcfg.batch.Head`. `transform` is what the model does to its logits, `kernel` the value of `loss.kernel`."""

    transform: HeadTransform
    kernel: str

    def loss_sum(
        self, model: torch.nn.Module, hidden: Tensor, labels: Tensor, loss: TokenLoss, *, shifted: bool = False
    ) -> Tensor:
        layer = output_layer(model)
        targets = supervised(labels, layer.vocabulary, shifted=shifted)
        if not len(targets):
            return nothing(hidden, *layer.parameters())
        return self.summed(layer, hidden, targets, loss)

    def logprobs(
        self, model: torch.nn.Module, hidden: Tensor, labels: Tensor, temperature: float = 1.0, *, shifted: bool = False
    ) -> Tensor:
        layer = output_layer(model)
        targets = supervised(labels, layer.vocabulary, shifted=shifted)
        if not len(targets):
            return hidden.new_zeros(labels.shape, dtype=torch.float32) + nothing(hidden, *layer.parameters())
        return targets.place(self.scored(layer, hidden, targets, temperature), labels)

    @abstractmethod
    def summed(self, layer: OutputLayer, hidden: Tensor, targets: Targets, loss: TokenLoss) -> Tensor:
        """The loss summed over N > 0 targets: a scalar with gradient."""

    @abstractmethod
    def scored(self, layer: OutputLayer, hidden: Tensor, targets: Targets, temperature: float) -> Tensor:
        """The log-probabilities of N > 0 targets: float32 [N] with gradient."""

    def rows_and_bias(
        self, layer: OutputLayer, hidden: Tensor, targets: Targets, temperature: float
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [N, H] and bias for a kernel that knows neither scales nor adapters: a scale of the logits is one of
        both. Raises `RunError` for a head that such a kernel cannot compute."""
        if layer.deltas:
            text = f"`{self.kernel}` reads the head's own weight, without the adapter on it"
            raise RunError(Problem(text, key="loss.kernel", fix=WHOLE_HEAD))
        if self.transform.softcap is not None and temperature != 1.0:
            text = f"`{self.kernel}` has no form for a head with a temperature after a soft cap"
            raise RunError(Problem(text, key="loss.kernel", fix=OTHER))
        factor, rows = self.transform.scale / temperature, targets.hidden(hidden)
        if factor == 1.0:
            return rows, layer.bias
        return rows * factor, None if layer.bias is None else layer.bias * factor
