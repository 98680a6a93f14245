"""How advantages and ratios become a loss of each token.

Notation: A the advantage of a token's completion, r the ratio of the policy's probability to that of the policy that sampled
(of the token, or the geometric mean over its completion), log p the policy's log-probability. All tensors are [B, L]. The
formulas are those of the papers named; where a paper leaves a choice, the choice is that of TRL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch

from memcfg.batch import Batch
from memcfg.engine import documents
from memcfg.engine.policy import spread

Tensor = torch.Tensor

EPSILON: Final = 1e-4
"""Added to a deviation before it divides."""
CLIPPED: Final = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
"""Losses that clip the ratio on both sides."""
PER_TOKEN: Final = ("dapo", "cispo", "vespo")
"""Losses that are averaged over all tokens of the step."""
PER_COMPLETION: Final = ("grpo", "sapo")
"""Losses that are averaged over the tokens of each completion, then over completions."""
SAPO: Final = (1.0, 1.05)
"""Temperatures of SAPO's gate, for good and for bad completions."""
VESPO: Final = ((2.0, 3.0), (3.0, 2.0))
"""Shape and rate of VESPO's weight, for good and for bad completions."""


@dataclass(frozen=True)
class Settings:
    """What the losses read of the plan; `high` is the upper clip."""

    loss: str = "dapo"
    low: float = 0.2
    high: float = 0.2
    delta: float | None = None
    by_completion: bool = False
    beta: float = 0.0
    kl_correction: bool = False
    off_policy: float | None = None
    scale: str = "group"


def advantages(rewards: Tensor, group: int, scale: str) -> Tensor:
    """The advantage of each completion [n], whose groups lie together: its reward less the mean of its group, divided by the
    sample deviation of its `group`, of the whole `batch`, or by nothing (`none`). Zero in a group of one."""
    if group == 1:
        return torch.zeros_like(rewards)
    grouped = rewards.view(-1, group)
    found = grouped - grouped.mean(1, keepdim=True)
    if scale == "group":
        found = found / (grouped.std(1, correction=1, keepdim=True) + EPSILON)
    if scale == "batch":
        found = found / (rewards.std(correction=1) + EPSILON)
    return found.view(-1)


def log_ratios(batch: Batch, difference: Tensor, mask: Tensor, *, by_completion: bool) -> Tensor:
    """The log-ratio of each token [B, L]; by completion the mean over its tokens (https://arxiv.org/abs/2507.18071)."""
    if not by_completion:
        return difference
    counts = documents.targets(batch).clamp(min=1)
    return spread(batch, documents.summed(batch, difference * mask) / counts)


def token_losses(
    batch: Batch, logp: Tensor, difference: Tensor, ratio: Tensor, advantage: Tensor, mask: Tensor, settings: Settings,
    weights: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The loss of each token before any KL penalty: [B, L]. `weights` are those of a correction for another sampler."""
    if settings.loss == "vespo":
        return -vespo_weight(batch, difference, advantage, mask, weights) * advantage * logp
    each = _token_losses(logp, ratio, advantage, settings)
    return each if weights is None else each * weights


def _token_losses(logp: Tensor, ratio: Tensor, advantage: Tensor, settings: Settings) -> Tensor:
    if settings.loss == "cispo":  # https://arxiv.org/abs/2506.13585
        return -ratio.clamp(max=settings.high).detach() * advantage * logp
    if settings.loss == "sapo":  # https://arxiv.org/abs/2511.20347
        sharp = torch.where(advantage > 0, *(torch.full_like(ratio, value) for value in SAPO))
        return -torch.sigmoid(sharp * (ratio - 1)) * 4 / sharp * advantage
    bounded = ratio if settings.delta is None else ratio.clamp(max=settings.delta)
    clipped = ratio.clamp(1 - settings.low, 1 + settings.high)
    return -torch.minimum(bounded * advantage, clipped * advantage)


@torch.no_grad()
def vespo_weight(
    batch: Batch, difference: Tensor, advantage: Tensor, mask: Tensor, weights: Tensor | None = None
) -> Tensor:
    """e^b w^a e^(-b w) of each completion's whole ratio w, at each of its tokens; it is 1 where w is 1. A correction by token
    is part of w."""
    total = documents.summed(batch, difference.clamp(-20, 20) * mask)
    if weights is not None:
        total = total + documents.summed(batch, weights.log().clamp(math.log(1e-8), 20.0) * mask)
    log_w = spread(batch, total).clamp(math.log(1e-8), 20.0)
    good, bad = VESPO
    shape = torch.where(advantage >= 0, torch.full_like(log_w, good[0]), torch.full_like(log_w, bad[0]))
    rate = torch.where(advantage >= 0, torch.full_like(log_w, good[1]), torch.full_like(log_w, bad[1]))
    return torch.exp(rate + shape * log_w - rate * log_w.exp()).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def near(batch: Batch, difference: Tensor, advantage: Tensor, mask: Tensor, threshold: float) -> Tensor:
    """Which tokens stay where bad completions are left out whose policy moved further than `threshold` (the mean of
    log p_old - log p): [B, L] (https://arxiv.org/abs/2512.02556)."""
    counts = documents.targets(batch).clamp(min=1)
    moved = spread(batch, documents.summed(batch, -difference.detach() * mask) / counts)
    return (advantage >= 0) | (moved <= threshold)


def reduced(batch: Batch, losses: Tensor, mask: Tensor, loss: str) -> Tensor:
    """The sum that `counted` normalises: a scalar."""
    sums = documents.summed(batch, losses * mask)
    tokens = documents.targets(batch).clamp(min=1)
    if loss in PER_COMPLETION:
        return (sums / tokens).sum()
    if loss == "bnpo":
        return sums.sum() / mask.sum().clamp(min=1)
    return sums.sum()


def counted(batch: Batch, loss: str, limit: int) -> Tensor:
    """What the sum is divided by, over the whole step: int64 scalar. Completions whose labels are masked count nothing.

    Tokens (`dapo`, `cispo`, `vespo`); completions (`grpo`, `sapo`, `luspo`), times the longest length (`dr_grpo`); for
    `bnpo`, which averages over the tokens of each micro-batch, micro-batches."""
    tokens = documents.targets(batch)
    if loss in PER_TOKEN:
        return tokens.sum()
    if loss == "bnpo":
        return (tokens.sum() > 0).long()
    completions = (tokens > 0).sum()
    return completions * limit if loss == "dr_grpo" else completions
