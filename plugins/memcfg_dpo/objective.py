"""Preference loss of pairs: the policy's log-probabilities against those of a frozen reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from memcfg.batch import Attention, Batch, Reference, TokenLoss
from memcfg.engine import documents
from memcfg.engine.means import Means
from memcfg.head.looks import Looks, looks
from memcfg_dpo.losses import Pairs, Settings, Sides, losses

Tensor = torch.Tensor


@dataclass(frozen=True)
class Seen:
    """What the model gives a batch of D documents: `scores` [D], log-probabilities summed with their weights; `whole` [D],
    summed alike; `certainty` [D], the mean of log p(token) - log sum p^2 over tokens, or None; `looks` at its tokens."""

    scores: Tensor
    whole: Tensor
    certainty: Tensor | None = None
    looks: Looks | None = None


class PreferencePairs:
    """Documents 2i and 2i + 1 of a batch are the better and the worse completion of pair i.

    `ld_alpha` weighs the tokens beyond the shorter completion's length (https://arxiv.org/abs/2409.06411); `weighting`
    weighs each pair by its likelihood under the policy (https://arxiv.org/abs/2406.11827); `watching` logs more."""

    def __init__(
        self, settings: Settings, ld_alpha: float | None = None, *, weighting: bool = False, watching: bool = False
    ) -> None:
        self.settings, self.ld_alpha, self.weighting, self.watching = settings, ld_alpha, weighting, watching
        self._attention: Attention | None = None
        self._reference: Reference | None = None
        self._means = Means()

    @property
    def scored_by(self) -> Any:
        """What scores depend on beside the rows and the weights of a model."""
        return self.ld_alpha

    def bind(self, loss: TokenLoss | None, attention: Attention) -> None:
        """The attention, given once; there is no token loss."""
        self._attention = attention

    def refer(self, reference: Reference) -> None:
        """The reference, given once."""
        self._reference = reference

    def count(self, batch: Batch) -> Tensor:
        """Pairs of which both completions have a target: int64 scalar. A batch whose labels are masked counts none."""
        return self._counted(documents.targets(batch)).sum()

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """Sum of the loss over the pairs: float32 scalar with gradient."""
        if self._reference is None:
            raise RuntimeError("the objective must be given its reference before it is used")
        # The reference goes first: what it needs is gone before the policy's activations are there.
        reference = self._reference.scores(model, batch, self.score)
        seen = self._seen(model, batch, certainty=self.weighting, watched=self.watching)
        found = self._pairs(batch, seen, reference)
        each = losses(found)
        if seen.certainty is not None:
            likely = _sides(seen.certainty.exp())
            each = each * likely.chosen * likely.rejected
        counted = self._counted(documents.targets(batch))
        self._log(model.training, found, each, counted)
        if seen.looks is not None:
            self._watch(model.training, batch, seen.looks, counted.repeat_interleave(2))
        return torch.where(counted, each, torch.zeros_like(each)).sum()

    def score(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """The summed log-probability of each completion: float32 [D]."""
        return self._seen(model, batch).scores

    def metrics(self) -> Mapping[str, float]:
        """Means over pairs of training since the last call: rewards, log-probabilities, and how often the better
        completion has the higher reward (a tie counts half)."""
        return self._means.read(training=True)

    def held_out(self) -> Mapping[str, float]:
        """The same of held-out pairs."""
        return self._means.read(training=False)

    def _seen(self, model: torch.nn.Module, batch: Batch, *, certainty: bool = False, watched: bool = False) -> Seen:
        if self._attention is None:
            raise RuntimeError("the objective must be bound before it is used")
        labels = batch.labels

        def call(head: Any, inner: torch.nn.Module, hidden: Tensor) -> tuple[Tensor, Tensor | None, Looks | None]:
            logps = head.logprobs(inner, hidden, labels)
            looked = looks(inner, hidden.detach(), labels) if watched else None
            if not certainty:
                return logps, None, looked
            # With z the logits: log sum p^2 = logsumexp(2z) - 2 logsumexp(z), and both follow from log p at two temperatures.
            with torch.no_grad():
                return logps, head.logprobs(inner, hidden, labels, 0.5) - logps, looked

        logps, certain, looked = model(**batch.inputs, **self._attention.inputs(batch), head_call=call)
        whole = documents.summed(batch, logps)
        scores = (
            whole
            if self.ld_alpha is None
            else documents.summed(batch, logps * self._weights(batch, self.ld_alpha).to(logps))
        )
        if certain is None:
            return Seen(scores, whole, looks=looked)
        certainties = documents.summed(batch, certain) / documents.targets(batch).clamp(min=1)
        return Seen(scores, whole, certainties, looked)

    def _weights(self, batch: Batch, beyond: float) -> Tensor:
        """The weight of each target [B, L]: one as far as both completions reach, `beyond` after that."""
        lengths = documents.targets(batch).view(-1, 2)
        shared = lengths.amin(1).repeat_interleave(2)
        reach = torch.cat([shared, shared.new_zeros(1)])[documents.owners(batch)].view(batch.labels.shape)
        return (documents.places(batch) <= reach).double() * (1 - beyond) + beyond

    def _pairs(self, batch: Batch, seen: Seen, reference: Tensor) -> Pairs:
        tokens = documents.targets(batch).clamp(min=1)
        return Pairs(
            _sides(seen.scores), _sides(reference.to(seen.scores)), _sides(seen.whole), _sides(tokens), self.settings
        )

    def _counted(self, targets: Tensor) -> Tensor:
        return targets.view(-1, 2).amin(1) > 0

    @torch.no_grad()
    def _log(self, training: bool, found: Pairs, each: Tensor, counted: Tensor) -> None:
        ratios = found.ratios
        better, worse = self.settings.beta * ratios.chosen, self.settings.beta * ratios.rejected
        values = {
            "rewards/chosen": better, "rewards/rejected": worse, "rewards/margins": better - worse,
            "rewards/accuracies": 0.5 * (1 + torch.sign(better - worse)),
            "logps/chosen": found.whole.chosen, "logps/rejected": found.whole.rejected,
        }  # fmt: skip
        self._means.add(training, counted.sum(), {name: (v * counted).sum() for name, v in values.items()})

    @torch.no_grad()
    def _watch(self, training: bool, batch: Batch, looked: Looks, counted: Tensor) -> None:
        """Means over tokens: `counted` [D] says whose."""
        tokens = documents.targets(batch) * counted
        entropy, logits, hit = (documents.summed(batch, values) * counted for values in looked)
        self._means.add(training, tokens.sum(), {"entropy": entropy.sum()})
        self._means.add(training, tokens[::2].sum(), {"mean_token_accuracy": hit[::2].sum()})
        for name, side in (("chosen", 0), ("rejected", 1)):
            self._means.add(training, tokens[side::2].sum(), {f"logits/{name}": logits[side::2].sum()})


def _sides(values: Tensor) -> Sides:
    """Values of documents [2P] as those of pairs."""
    return Sides(*values.view(-1, 2).unbind(1))
