"""Losses that depend on a target's log-probability alone."""

from __future__ import annotations

import torch


class NLL:
    """Negative log-likelihood, -log p."""

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
