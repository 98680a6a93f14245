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
from memcfg_grpo.entropy import Bonus, Steering, uncertain
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

    def __init__(
        self, sampled: Sampled, settings: Settings, correction: Correction | None = None, *, bonus: Bonus | None = None,
        share: float = 1.0,
    ) -> None:  # fmt: skip
        """`correction`: for a sampler that is not the trained model. `bonus`: for entropy. `share`: of a micro-batch's tokens,
        those of highest entropy, which are learned from."""
        super().__init__(sampled)
        self.settings, self.correction, self.bonus, self.share = settings, correction, bonus, share

    @property
    def compares(self) -> bool:
        """Whether there is a penalty, which needs a reference."""
        return self.settings.beta != 0

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
        logp, entropy = self._scored(model, batch)
        old = batch.fields.get(OLD, logp.detach())
        difference = (logp - old) * mask
        ratio = log_ratios(batch, difference, mask, by_completion=settings.by_completion).exp()
        advantage = spread(batch, batch.fields["advantage"].to(logp))
        seen, weights = {"entropy": -logp if entropy is None else entropy}, None
        if self.correction is not None:
            weights = self.correction.weights(batch, old, batch.fields[SAMPLED], mask)
            seen["correction"] = weights
        each = token_losses(batch, logp, difference, ratio, advantage, mask, settings, weights)
        if settings.off_policy is not None:
            moved = (logp.detach() - batch.fields[SAMPLED].nan_to_num()) * mask if weights is not None else difference
            each = each * near(batch, moved, advantage, mask, settings.off_policy)
        chosen = mask if entropy is None or self.share >= 1 else uncertain(entropy, mask, self.share)
        each = each * chosen
        if settings.beta and REFERENCE in batch.fields:
            penalty = kl(logp, batch.fields[REFERENCE])
            each = each + settings.beta * (penalty * ratio if settings.kl_correction else penalty)
            seen["kl"] = penalty
        self.log_tokens(model, mask, seen | self._clipped(ratio.detach(), advantage))
        loss = reduced(batch, each, mask, settings.loss)
        return loss if self.bonus is None or entropy is None else self._rewarded(model, batch, loss, entropy, chosen)

    def _scored(self, model: torch.nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities, and entropies where something reads them."""
        if self.bonus is None and self.share >= 1:
            return self.score(model, batch), None
        return self.score_with_entropy(model, batch)

    def _rewarded(self, model: torch.nn.Module, batch: Batch, loss: Tensor, entropy: Tensor, chosen: Tensor) -> Tensor:
        """The loss less the bonus, which weighs as much as what the micro-batch counts."""
        assert self.bonus is not None
        count = self.count(batch).to(loss)
        if model.training:
            self.bonus.see(entropy, chosen)
        applied = loss.new_tensor(self.bonus.applied())
        self._means.add(model.training, count, {"policy_loss": loss, "entropy_coef": applied * count})
        return loss - self.bonus.value(entropy, chosen) * count

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


class SteeredGroupRelative(GroupRelative):
    """With a bonus that is steered from step to step, and kept in checkpoints."""

    bonus: Steering

    def stepped(self) -> None:
        """Called once the gradients of a step are there."""
        self.bonus.step()

    def state_dict(self) -> dict[str, Any]:
        return self.bonus.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.bonus.load_state_dict(state)
