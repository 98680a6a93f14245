"""Liger's fused linear cross-entropy as the model's head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from memcfg.batch import TokenLoss
from memcfg.head import HeadTransform, LinearHead, OutputLayer, Targets


@dataclass(frozen=True)
class LigerHead(LinearHead):
    """A head that leaves the rows of logits to Liger, which chooses the size of its chunks (about N x H logits).

    Its weight gradient adds up in float32. Log-probabilities are its losses without reduction, whose backward makes the
    logits once more."""

    transform: HeadTransform
    scaled: bool = False
    """Each token's loss is multiplied by its own probability, held constant: dynamic fine-tuning."""

    kernel = "liger"

    def summed(self, layer: OutputLayer, hidden: torch.Tensor, targets: Targets, loss: TokenLoss) -> torch.Tensor:
        return self._losses(layer, hidden, targets, 1.0, "sum", use_token_scaling=self.scaled)

    def scored(self, layer: OutputLayer, hidden: torch.Tensor, targets: Targets, temperature: float) -> torch.Tensor:
        return -self._losses(layer, hidden, targets, temperature, "none")

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

        rows, bias = self.rows_and_bias(layer, hidden, targets, temperature)
        return liger_fused_linear_cross_entropy(
            rows, layer.weight, targets.ids, bias, reduction=reduction, softcap=self.transform.softcap,
            accum_dtype=torch.float32, **more,
        ).float()  # fmt: skip
