"""What the plugin puts into a run."""

from __future__ import annotations

from typing import Any

import torch

from memcfg import Plan, hookimpl
from memcfg.engine.evidence import Effective


class FocalLoss:
    """Focal loss of a token whose target has probability p: `-(1 - p)^gamma * log p` (Lin et al., 2017, equation 4).

    `value` and `derivative` take log p (any shape, float32 or float64) and return the loss and its derivative with
    respect to log p, in the same shape and dtype."""

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def value(self, logp: torch.Tensor) -> torch.Tensor:
        return -(self._miss(logp) ** self.gamma) * logp

    def derivative(self, logp: torch.Tensor) -> torch.Tensor:
        """With q = 1 - p: `q^gamma * (gamma * p * log(p) / q - 1)`. The quotient tends to -1 where p tends to 1."""
        miss = self._miss(logp)
        quotient = torch.where(miss > 0, logp / miss, -1.0)
        return miss**self.gamma * (self.gamma * logp.exp() * quotient - 1)

    @staticmethod
    def _miss(logp: torch.Tensor) -> torch.Tensor:
        """1 - p, exact also where p is close to 1; rounding may have put log p a little above 0."""
        return (-torch.expm1(logp)).clamp_min(0)


@hookimpl
def memcfg_loss(plan: Plan) -> FocalLoss:
    return FocalLoss(plan["focal.gamma"])


@hookimpl
def memcfg_evidence(run: Any, found: list[Effective]) -> list[Effective]:
    """What the live run scores tokens with: memcfg stops a run in which it is not what the plan says."""
    loss = run.loss
    seen = f"tokens are scored by `{type(loss).__name__}`"
    return [
        *found,
        Effective("loss.type", "focal" if isinstance(loss, FocalLoss) else type(loss).__name__, seen),
        Effective("focal.gamma", getattr(loss, "gamma", None), seen),
    ]
