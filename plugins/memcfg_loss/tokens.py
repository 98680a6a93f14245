"""Losses of single tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class NLL:
    """Negative log-likelihood, -log p.

    With `smoothing` s over a vocabulary of V, the target's share is 1 - s and every token has s / V beside (Szegedy et al.
    2016, arXiv 1512.00567). With `z_loss` z, z times the square of the log-sum of the logits is added (Chowdhery et al.
    2022, arXiv 2204.02311). Both need more than log p: `value` and `derivative` are those without them."""

    smoothing: float = 0.0
    z_loss: float = 0.0

    @property
    def shaped(self) -> bool:
        """Whether the loss depends on more than the target's log-probability."""
        return bool(self.smoothing or self.z_loss)

    def value(self, logp: torch.Tensor) -> torch.Tensor:
        return -logp

    def derivative(self, logp: torch.Tensor) -> torch.Tensor:
        return torch.full_like(logp, -1.0)


class DFT:
    """Dynamic fine-tuning, -p log p with p held constant in the derivative: tokens that the model finds unlikely pull
    less (Wu et al. 2025, "On the Generalization of SFT", arXiv 2508.05629)."""

    def value(self, logp: torch.Tensor) -> torch.Tensor:
        return -logp.exp() * logp

    def derivative(self, logp: torch.Tensor) -> torch.Tensor:
        return -logp.exp()
