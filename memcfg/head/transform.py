"""What a model does to `hidden @ weight.T + bias` before it calls the result logits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class HeadTransform:
    """logits = softcap * tanh(scale * (hidden @ weight.T + bias) / softcap) / temperature.

    `scale` is what multiplies the raw logits (Cohere's `logit_scale`, Falcon-H1's `lm_head_multiplier`, one over Granite's
    `logits_scaling`); `softcap` bounds them (Gemma 2); None leaves that part out. `temperature` is the caller's."""

    scale: float = 1.0
    softcap: float | None = None
    temperature: float = 1.0

    def tempered(self, temperature: float) -> HeadTransform:
        return replace(self, temperature=self.temperature * temperature)

    def apply_(self, raw: torch.Tensor) -> torch.Tensor:
        """Turn raw logits (float32, any shape) into logits, in place."""
        if self.softcap is None:
            factor = self.scale / self.temperature
            return raw if factor == 1.0 else raw.mul_(factor)
        return raw.mul_(self.scale / self.softcap).tanh_().mul_(self.softcap / self.temperature)

    def slope(self, logits: torch.Tensor) -> torch.Tensor | None:
        """The part of d logits / d raw that differs between elements: one more tensor like `logits`, or None."""
        if self.softcap is None:
            return None
        return (logits * (self.temperature / self.softcap)).square_().neg_().add_(1.0)

    def chain_(self, gradient: torch.Tensor, slope: torch.Tensor | None) -> torch.Tensor:
        """Turn a gradient over logits into one over raw logits, in place."""
        factor = self.scale / self.temperature
        if slope is not None:
            gradient.mul_(slope)
        return gradient if factor == 1.0 else gradient.mul_(factor)

    def describe(self) -> str:
        parts = [] if self.scale == 1.0 else [f"scale {self.scale:g}"]
        parts += [] if self.softcap is None else [f"soft cap {self.softcap:g}"]
        return ", ".join(parts) or "plain logits"
