"""Liger's fused linear cross-entropy as the model's head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from memcfg import Problem, RunError
from memcfg.batch import TokenLoss
from memcfg.head.layer import WHOLE_HEAD, OutputLayer, output_layer
from memcfg.head.targets import Targets, nothing, supervised
from memcfg.head.transform import HeadTransform


@dataclass(frozen=True)
class LigerHead:
    """A head that leaves the rows of logits to Liger, which chooses the size of its chunks (about N x H logits).

    Its weight gradient adds up in float32. Log-probabilities are its losses without reduction, whose backward makes the
    logits once more."""

    transform: HeadTransform
    scaled: bool = False
    """Each token's loss is multiplied by its own probability, held constant: dynamic fine-tuning."""

    kernel = "liger"

    def loss_sum(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, loss: TokenLoss
    ) -> torch.Tensor:
        layer = output_layer(model)
        targets = supervised(labels, layer.vocabulary)
        if not len(targets):
            return nothing(hidden, *layer.parameters())
        return self._losses(layer, hidden, targets, 1.0, "sum", use_token_scaling=self.scaled)

    def logprobs(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0
    ) -> torch.Tensor:
        layer = output_layer(model)
        targets = supervised(labels, layer.vocabulary)
        if not len(targets):
            return hidden.new_zeros(labels.shape, dtype=torch.float32) + nothing(hidden, *layer.parameters())
        return targets.place(-self._losses(layer, hidden, targets, temperature, "none"), labels)

    def describe(self) -> str:
        return f"Liger's fused linear cross-entropy, {self.transform.describe()}"

    def _losses(
        self,
        layer: OutputLayer,
        hidden: torch.Tensor,
        targets: Targets,
        temperature: float,
        reduction: str,
        **more: Any,
    ) -> torch.Tensor:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        if layer.deltas:
            text = "Liger's fused loss reads the head's own weight, without the adapter on it"
            raise RunError(Problem(text, key="loss.kernel", fix=WHOLE_HEAD))
        if self.transform.softcap is not None and temperature != 1.0:
            text = "Liger's fused loss caps logits last: it has no place for a temperature after that"
            raise RunError(Problem(text, key="loss.kernel", fix="loss.kernel=triton"))
        # A scale of the logits is one of the hidden states and the bias.
        factor = self.transform.scale / temperature
        rows, bias = targets.hidden(hidden), layer.bias
        if factor != 1.0:
            rows, bias = rows * factor, None if bias is None else bias * factor
        return liger_fused_linear_cross_entropy(
            rows, layer.weight, targets.ids, bias, reduction=reduction, softcap=self.transform.softcap,
            accum_dtype=torch.float32, **more,
        ).float()  # fmt: skip
