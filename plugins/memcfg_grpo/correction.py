"""Where completions come from another sampler than the trained model: how much each counts for that (importance sampling,
https://fengyao.notion.site/off-policy-rl).

The ratio is that of the trained model's probability, when it sampled nothing itself yet, and the sampler's; by completion it
is the product over its tokens. Out of its bounds a ratio is cut to them (`truncate`) or becomes zero (`mask`)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from memcfg.batch import Batch
from memcfg.engine import documents
from memcfg.engine.policy import spread

Tensor = torch.Tensor


@dataclass(frozen=True)
class Correction:
    """`mode`: sequence_mask, sequence_truncate, token_mask or token_truncate; a bound that is None bounds nothing."""

    mode: str
    low: float | None = None
    high: float | None = None

    @torch.no_grad()
    def weights(self, batch: Batch, old: Tensor, sampled: Tensor, mask: Tensor) -> Tensor:
        """What each token's loss is multiplied with: [B, L]. Where the sampler's log-probability is nan it is one."""
        gap = ((old - sampled) * mask).nan_to_num(nan=0.0)
        if self.mode.startswith("sequence"):
            gap = spread(batch, documents.summed(batch, gap))
        ratio = gap.exp()
        if self.mode.endswith("truncate"):
            return ratio.clamp(self.low, self.high)
        outside = torch.zeros_like(mask)
        if self.low is not None:
            outside = outside | (ratio < self.low)
        if self.high is not None:
            outside = outside | (ratio > self.high)
        return ratio.masked_fill(outside, 0.0)
