"""Preference loss of single completions, each marked desirable or not, against a frozen reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from memcfg.batch import Attention, Batch, Reference, TokenLoss
from memcfg.engine import documents
from memcfg.engine.means import Means
from memcfg.head.looks import Looks, looks

Tensor = torch.Tensor
DESIRABLE = "desirable"
"""Field of a batch: bool [D], how each document is marked."""


@dataclass(frozen=True)
class Settings:
    """What the loss reads of the plan. `loss`: kto or apo_zero_unpaired."""

    loss: str = "kto"
    beta: float = 0.1
    desirable: float = 1.0
    undesirable: float = 1.0


class MarkedCompletions:
    """Every document of a batch is a prompt with a completion. Those in `batch.aside` are prompts with the completions of
    others: from them the divergence of policy and reference is estimated, without learning anything
    (https://arxiv.org/abs/2402.01306). A batch without any, of one row, takes it to be zero."""

    def __init__(self, settings: Settings, *, watching: bool = False) -> None:
        self.settings, self.watching = settings, watching
        self._attention: Attention | None = None
        self._reference: Reference | None = None
        self._means = Means()

    def bind(self, loss: TokenLoss | None, attention: Attention) -> None:
        """The attention, given once; there is no token loss."""
        self._attention = attention

    def refer(self, reference: Reference) -> None:
        """The reference, given once."""
        self._reference = reference

    def count(self, batch: Batch) -> Tensor:
        """Documents that have a target: int64 scalar. A batch whose labels are masked counts none."""
        return (documents.targets(batch) > 0).sum()

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """Sum of the loss over the documents: float32 scalar with gradient."""
        if self._reference is None:
            raise RuntimeError("the objective must be given its reference before it is used")
        divergence = self.divergence(model, batch.aside, self._reference)
        reference = self._reference.scores(model, batch, self.score)
        scores, looked = self._seen(model, batch, watched=self.watching)
        ratios, desirable = scores - reference.to(scores), batch.fields[DESIRABLE]
        each = losses(ratios, desirable, divergence.to(scores), self.settings)
        counted = documents.targets(batch) > 0
        self._log(model.training, batch, scores.detach(), ratios.detach(), divergence, counted)
        if looked is not None:
            self._watch(model.training, batch, looked, counted)
        return torch.where(counted, each, torch.zeros_like(each)).sum()

    @torch.no_grad()
    def divergence(self, model: torch.nn.Module, aside: Batch | None, reference: Reference) -> Tensor:
        """The mean log-ratio of completions beside prompts that they do not belong to, or zero if it is negative."""
        if aside is None:
            return torch.zeros((), device=next(model.parameters()).device)
        ratios = self.score(model, aside) - reference.scores(model, aside, self.score)
        return ratios.mean().clamp(min=0)

    def score(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """The summed log-probability of each completion: float32 [D]."""
        return self._seen(model, batch)[0]

    def _seen(self, model: torch.nn.Module, batch: Batch, *, watched: bool = False) -> tuple[Tensor, Looks | None]:
        if self._attention is None:
            raise RuntimeError("the objective must be bound before it is used")
        labels = batch.labels

        def call(head: Any, inner: torch.nn.Module, hidden: Tensor) -> tuple[Tensor, Looks | None]:
            return head.logprobs(inner, hidden, labels), looks(inner, hidden.detach(), labels) if watched else None

        logps, looked = model(**batch.inputs, **self._attention.inputs(batch), head_call=call)
        return documents.summed(batch, logps), looked

    def metrics(self) -> Mapping[str, float]:
        """Means over the documents of training since the last call: rewards and log-probabilities of either mark, the
        divergence, and how often a reward has the sign of its mark (none at all counts half)."""
        return _with_margin(self._means.read(training=True))

    def held_out(self) -> Mapping[str, float]:
        """The same of held-out documents."""
        return _with_margin(self._means.read(training=False))

    @torch.no_grad()
    def _log(
        self, training: bool, batch: Batch, scores: Tensor, ratios: Tensor, divergence: Tensor, counted: Tensor
    ) -> None:
        rewards = self.settings.beta * ratios
        marked = batch.fields[DESIRABLE]
        for name, mine in (("chosen", marked & counted), ("rejected", ~marked & counted)):
            sums = {f"rewards/{name}": (rewards * mine).sum(), f"logps/{name}": (scores * mine).sum()}
            self._means.add(training, mine.sum(), sums)
        right = 0.5 * (1 + torch.sign(torch.where(marked, ratios, -ratios)))
        self._means.add(training, counted.sum(), {"rewards/accuracies": (right * counted).sum()})
        self._means.add(training, counted.any().long(), {"kl": divergence * counted.any()})

    @torch.no_grad()
    def _watch(self, training: bool, batch: Batch, looked: Looks, counted: Tensor) -> None:
        """Means over tokens."""
        tokens, marked = documents.targets(batch) * counted, batch.fields[DESIRABLE]
        entropy, logits = (documents.summed(batch, values) * counted for values in (looked.entropy, looked.logits))
        self._means.add(training, tokens.sum(), {"entropy": entropy.sum()})
        for name, mine in (("chosen", marked), ("rejected", ~marked)):
            self._means.add(training, (tokens * mine).sum(), {f"logits/{name}": (logits * mine).sum()})


def losses(ratios: Tensor, desirable: Tensor, divergence: Tensor, settings: Settings) -> Tensor:
    """The loss of each document [D] from its log-ratio. `desirable` bool [D], `divergence` a scalar.

    kto: 1 - sigma(beta (r - z)) for a desirable one, 1 - sigma(beta (z - r)) for another, with z the divergence
    (equation 7 of https://arxiv.org/abs/2402.01306). apo_zero_unpaired: the same with z = 0
    (equation 7 of https://arxiv.org/abs/2408.06266)."""
    origin = divergence if settings.loss == "kto" else torch.zeros_like(divergence)
    distance = torch.where(desirable, ratios - origin, origin - ratios)
    weight = desirable.to(ratios) * (settings.desirable - settings.undesirable) + settings.undesirable
    return weight * (1 - (settings.beta * distance).sigmoid())


def _with_margin(means: dict[str, float]) -> dict[str, float]:
    if "rewards/chosen" in means and "rewards/rejected" in means:
        means["rewards/margins"] = means["rewards/chosen"] - means["rewards/rejected"]
    return means
