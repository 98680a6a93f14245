"""The plain head: the model's own logits, all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import log_softmax

from memcfg.batch import TokenLoss
from memcfg.engine.forward import model_logits
from memcfg.head.targets import Targets, supervised
from memcfg_loss.tokens import NLL


class FullHead:
    """Log-probabilities from the logits [B, L, V] that the model itself makes, in float32.

    It needs no knowledge of the architecture and is the reference for every other head."""

    kernel = "full"

    def loss_sum(
        self,
        model: torch.nn.Module,
        hidden: torch.Tensor,
        labels: torch.Tensor,
        loss: TokenLoss,
        *,
        shifted: bool = False,
    ) -> torch.Tensor:
        logits, targets = self._logits(model, hidden, labels, shifted)
        scored = log_softmax(logits, dim=-1)
        logp = scored.gather(1, targets.ids[:, None]).squeeze(1)
        if not (isinstance(loss, NLL) and loss.shaped):
            return ScoreTokens.apply(logp, loss)
        smooth = logp if not loss.smoothing else (1.0 - loss.smoothing) * logp + loss.smoothing * scored.mean(1)
        return (loss.z_loss * logits.logsumexp(1).square() - smooth).sum()

    def logprobs(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0, *,
        shifted: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        logits, targets = self._logits(model, hidden, labels, shifted)
        scored = log_softmax(logits / temperature, dim=-1)
        return targets.place(scored.gather(1, targets.ids[:, None]).squeeze(1), labels)

    def distributions(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0, *,
        shifted: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """See `memcfg.batch.Informed`."""
        logits, targets = self._logits(model, hidden, labels, shifted)
        scored = log_softmax(logits / temperature, dim=-1)
        logp, entropy = scored.gather(1, targets.ids[:, None]).squeeze(1), -(scored.exp() * scored).sum(1)
        return targets.place(logp, labels), targets.place(entropy, labels)

    def describe(self) -> str:
        return "whole logits"

    def _logits(
        self, model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, shifted: bool
    ) -> tuple[torch.Tensor, Targets]:
        """Float32 logits [N, V] at the targets."""
        logits = model_logits(model, hidden)
        targets = supervised(labels, logits.shape[-1], shifted=shifted)
        return targets.hidden(logits).float(), targets


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
