"""REINFORCE on whole completions, each compared with the others of its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from memcfg import prompts
from memcfg.batch import Batch
from memcfg.engine import documents
from memcfg.engine.policy import OLD, REFERENCE, Sampled, SampledPolicy
from memcfg.rollouts import Round

Tensor = torch.Tensor

EPSILON: Final = 1e-4
"""Added to a deviation before it divides."""


@dataclass(frozen=True)
class Settings:
    """What the objective reads of the plan; `high` is the upper clip, `bounds` the lowest and highest reward."""

    beta: float = 0.05
    low: float = 0.2
    high: float = 0.2
    normalize: bool = False
    bounds: tuple[float, float] | None = None


class LeaveOneOut(SampledPolicy):
    """A completion is one action: its reward, less the KL penalty of its tokens, less the mean of its group's others.

    The penalty is beta times the log-ratio of the policy that sampled and the reference, summed over the completion."""

    def __init__(self, sampled: Sampled, settings: Settings) -> None:
        super().__init__(sampled)
        self.settings = settings

    @property
    def compares(self) -> bool:
        """Whether there is a penalty, which needs a reference."""
        return self.settings.beta != 0

    @property
    def keeps_old(self) -> bool:  # type: ignore[override]
        """The penalty is that of the policy that sampled."""
        return self.compares

    def total(self, values: Tensor) -> Tensor:
        """The weighted sum, within its bounds."""
        total, bounds = super().total(values), self.settings.bounds
        return total if bounds is None else total.clamp(*bounds)

    def rows(
        self, sampled: Round, total: Tensor, masked: Sequence[bool]
    ) -> tuple[list[dict[str, Any]], dict[str, float]]:
        """One row for each completion, with its reward; `settle` gives its advantage."""
        rows = [
            prompts.completed(prompt, [sample], masked=[hidden], reward=[value])
            for prompt, sample, hidden, value in zip(
                sampled.prompts, sampled.samples, masked, total[sampled.mine].tolist(), strict=True
            )
        ]
        return rows, {}

    def settle(self, sampled: Round, batches: Sequence[Batch]) -> Mapping[str, float]:
        """The advantage of each completion, over the groups of all processes."""
        rewards = torch.cat([batch.fields["reward"] for batch in batches]).double()
        moved = torch.cat([documents.summed(batch, self._moved(batch)) for batch in batches]).double()
        tokens = torch.cat([documents.targets(batch) for batch in batches])
        everyone = sampled.gather(rewards - self.settings.beta * moved)
        mine = advantages(everyone, sampled.group, normalize=self.settings.normalize)[sampled.mine]
        for batch, part in zip(batches, mine.split([len(batch.lengths) for batch in batches]), strict=True):
            batch.fields["advantage"] = part.float()
        return {"kl": float(moved.sum() / tokens.sum().clamp(min=1))} if self.compares else {}

    def count(self, batch: Batch) -> Tensor:
        """Completions with a target: int64 scalar."""
        return (documents.targets(batch) > 0).sum()

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """The clipped loss of each completion, summed: float32 scalar with gradient."""
        settings, mask = self.settings, documents.learned(batch)
        logp = self.score(model, batch)
        whole = documents.summed(batch, (logp - batch.fields.get(OLD, logp.detach())) * mask)
        advantage, ratio = batch.fields["advantage"].to(logp), whole.exp()
        clipped = ratio.clamp(1 - settings.low, 1 + settings.high)
        each = -torch.minimum(ratio * advantage, clipped * advantage)
        counted = documents.targets(batch) > 0
        self.log_tokens(model, mask, {"entropy": -logp})
        low, high = (ratio < 1 - settings.low) & (advantage < 0), (ratio > 1 + settings.high) & (advantage > 0)
        clips = {"clip_ratio/low": low, "clip_ratio/high": high, "clip_ratio/region": low | high}
        self._means.add(model.training, counted.sum(), {name: (v & counted).sum().float() for name, v in clips.items()})
        return torch.where(counted, each, torch.zeros_like(each)).sum()

    def _moved(self, batch: Batch) -> Tensor:
        """The log-ratio of the sampling policy and the reference at each token: [B, L]."""
        if not self.compares:
            return torch.zeros(batch.labels.shape)
        return batch.fields[OLD] - batch.fields[REFERENCE]


def advantages(rewards: Tensor, group: int, *, normalize: bool) -> Tensor:
    """Each reward [n] less the mean of the others of its group (which lie together); with `normalize` less their mean and
    divided by their sample deviation, over all groups. Zero in a group of one."""
    if group == 1:
        return torch.zeros_like(rewards)
    grouped = rewards.view(-1, group)
    others = (grouped.sum(1, keepdim=True) - grouped) / (group - 1)
    found = (grouped - others).view(-1)
    return (found - found.mean()) / (found.std(correction=1) + EPSILON) if normalize else found
