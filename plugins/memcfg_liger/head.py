"""Liger's fused linear cross-entropy as the model's head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from memcfg import Problem, RunError
from memcfg.batch import IGNORE, TokenLoss
from memcfg.head import (
    HeadTransform,
    LinearHead,
    OutputLayer,
    Targets,
    nothing,
    output_layer,
    supervised,
    transform_of,
)  # fmt: skip

ROWS = 1024
"""Positions whose logits Liger's divergence makes at a time: its own default."""


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

    def divergence_sum(
        self, model: torch.nn.Module, hidden: torch.Tensor, teacher: torch.nn.Module, states: torch.Tensor,
        labels: torch.Tensor, beta: float,
    ) -> torch.Tensor:  # fmt: skip
        """Liger's fused divergence. It rounds logits and the weight's gradient to the model's dtype."""
        from liger_kernel.chunked_loss.jsd_loss import LigerFusedLinearJSDFunction

        layer, its = output_layer(model), output_layer(teacher)
        targets = supervised(labels, layer.vocabulary)
        if not len(targets):
            return nothing(hidden, *layer.parameters())
        rows, bias = self.uncapped(layer, hidden, targets)
        its_rows, its_bias = LigerHead(transform_of(teacher)).uncapped(its, states, targets)
        mean: torch.Tensor = LigerFusedLinearJSDFunction.apply(
            rows, layer.weight, its_rows, its.weight, targets.ids, bias, its_bias, 0.0, 1.0, beta, IGNORE, 1.0, False,
            ROWS, False,
        )  # fmt: skip
        return mean * len(targets)

    def uncapped(
        self, layer: OutputLayer, hidden: torch.Tensor, targets: Targets
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.transform.softcap is not None:
            text = "`liger` has no fused divergence for a head with a soft cap"
            raise RunError(Problem(text, key="loss.kernel", fix="loss.kernel=torch"))
        return self.rows_and_bias(layer, hidden, targets, 1.0)

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
