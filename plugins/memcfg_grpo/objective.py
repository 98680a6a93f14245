"""Clipped policy gradients on groups of completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from memcfg import Problem, RunError, prompts
from memcfg.batch import Batch
from memcfg.engine import documents
from memcfg.engine.policy import OLD, REFERENCE, SAMPLED, Sampled, SampledPolicy, kl, spread
from memcfg.rollouts import Round
from memcfg_grpo.correction import Correction
from memcfg_grpo.losses import (
    CLIPPED,
    Settings,
    advantages,
    counted,
    log_ratios,
    near,
    reduced,
    token_losses,
)

Tensor = torch.Tensor


class GroupRelative(SampledPolicy):
    """Each completion's reward less its group's mean is the advantage of all its tokens."""

    def __init__(self, sampled: Sampled, settings: Settings, correction: Correction | None = None) -> None:
        """`correction`: for a sampler that is not the trained model."""
        super().__init__(sampled)
        self.settings, self.correction = settings, correction

    @property
    def keeps_old(self) -> bool:  # type: ignore[override]
        """A correction compares the trained model with its sampler."""
        return self.correction is not None

    def rows(
        self, sampled: Round, total: Tensor, masked: Sequence[bool]
    ) -> tuple[list[dict[str, Any]], dict[str, float]]:
        """One row for each completion, with its advantage."""
        mine = advantages(total, sampled.group, self.settings.scale)[sampled.mine].tolist()
        theirs = self.correction is not None
        if theirs and any(sample.logprobs is None for sample in sampled.samples):
            text = "the sampler gives no log-probabilities, which the correction compares"
            raise RunError(Problem(text, key="grpo.correction", fix="grpo.correction=false"))
        rows = [
            prompts.completed(
                prompt,
                [sample],
                masked=[hidden],
                advantage=[value],
                **({prompts.LOGPROBS: [sample.logprobs]} if theirs else {}),
            )
            for prompt, sample, hidden, value in zip(sampled.prompts, sampled.samples, masked, mine, strict=True)
        ]
        return rows, {}

    def count(self, batch: Batch) -> Tensor:
        """What the loss is divided by over the step, by `grpo.loss`."""
        return counted(batch, self.settings.loss, self.limit)

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """The loss summed over what is counted: float32 scalar with gradient."""
        settings, mask = self.settings, documents.learned(batch)
        logp = self.score(model, batch)
        old = batch.fields.get(OLD, logp.detach())
        difference = (logp - old) * mask
        ratio = log_ratios(batch, difference, mask, by_completion=settings.by_completion).exp()
        advantage = spread(batch, batch.fields["advantage"].to(logp))
        seen, weights = {"entropy": -logp}, None
        if self.correction is not None:
            weights = self.correction.weights(batch, old, batch.fields[SAMPLED], mask)
            seen["correction"] = weights
        each = token_losses(batch, logp, difference, ratio, advantage, mask, settings, weights)
        if settings.off_policy is not None:
            moved = (logp.detach() - batch.fields[SAMPLED].nan_to_num()) * mask if weights is not None else difference
            each = each * near(batch, moved, advantage, mask, settings.off_policy)
        if settings.beta and REFERENCE in batch.fields:
            penalty = kl(logp, batch.fields[REFERENCE])
            each = each + settings.beta * (penalty * ratio if settings.kl_correction else penalty)
            seen["kl"] = penalty
        self.log_tokens(model, mask, seen | self._clipped(ratio.detach(), advantage))
        return reduced(batch, each, mask, settings.loss)

    def _clipped(self, ratio: Tensor, advantage: Tensor) -> dict[str, Tensor]:
        """Which tokens' ratios were clipped, and on which side."""
        if self.settings.loss == "cispo":
            return {"clip_ratio/high": ((ratio > self.settings.high) & (advantage > 0)).float()}
        if self.settings.loss not in CLIPPED:
            return {}
        low = (ratio < 1 - self.settings.low) & (advantage < 0)
        high = (ratio > 1 + self.settings.high) & (advantage > 0)
        return {
            "clip_ratio/low": low.float(),
            "clip_ratio/high": high.float(),
            "clip_ratio/region": (low | high).float(),
        }
