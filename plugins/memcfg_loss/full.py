"""The plain head: the model's own logits, all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import log_softmax

from memcfg.batch import TokenLoss
from memcfg.engine.forward import model_logits
from memcfg.head.targets import Targets, supervised


class FullHead:
    """Log-probabilities from the logits [B, L, V] that the model itself makes, in float32.

    It needs no knowledge of the architecture and is the reference for every other head."""

    kernel = "full"

    def loss_sum(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, loss: TokenLoss
    ) -> torch.Tensor:
        logp, _ = self._logp(model, hidden, labels, 1.0)
        return ScoreTokens.apply(logp, loss)

    def logprobs(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0
    ) -> torch.Tensor:
        logp, targets = self._logp(model, hidden, labels, temperature)
        return targets.place(logp, labels)

    def describe(self) -> str:
        return "whole logits"

    def _logp(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, temperature: float
    ) -> tuple[torch.Tensor, Targets]:
        logits = model_logits(model, hidden)
        targets = supervised(labels, logits.shape[-1])
        scored = log_softmax(targets.hidden(logits).float() / temperature, dim=-1)
        return scored.gather(1, targets.ids[:, None]).squeeze(1), targets


class ScoreTokens(torch.autograd.Function):
    """Sum of a token loss over log-probabilities, with the derivative that the loss itself states."""

    @staticmethod
    def forward(ctx: Any, logp: torch.Tensor, loss: TokenLoss) -> torch.Tensor:
        ctx.save_for_backward(loss.derivative(logp))
        return loss.value(logp).sum()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (derivative,) = ctx.saved_tensors
        return derivative * gradient, None
