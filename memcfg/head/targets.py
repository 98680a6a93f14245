"""Which positions a loss reads, and what to return when there are none."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from memcfg import Problem, RunError
from memcfg.batch import IGNORE


@dataclass(frozen=True)
class Targets:
    """The N supervised targets of a micro-batch. `ids` int64 [N]; `at` int64 [N]: where each lies in the flat [B * L];
    `ahead`: how many positions before it the hidden state lies that predicts it."""

    ids: torch.Tensor
    at: torch.Tensor
    ahead: int = 1

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sources(self) -> torch.Tensor:
        """Where in the flat [B * L] the hidden state lies that predicts each: int64 [N]."""
        return self.at - self.ahead

    def hidden(self, hidden: torch.Tensor) -> torch.Tensor:
        """The hidden states [N, H] that predict the targets."""
        return hidden.reshape(-1, hidden.shape[-1]).index_select(0, self.sources)

    def place(self, values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One value for each target [N], put where its label lies [B, L]; zero elsewhere."""
        return values.new_zeros(labels.numel()).index_copy(0, self.at, values).view(labels.shape)


def supervised(labels: torch.Tensor, vocabulary: int, *, shifted: bool = False) -> Targets:
    """The targets of `labels` [B, L]. Column 0 of unshifted ones has no predecessor and is never a target."""
    chosen = labels != IGNORE
    if not shifted:
        chosen[:, 0] = False
    at = chosen.flatten().nonzero().squeeze(1)
    ids = labels.flatten().index_select(0, at)
    if len(ids) and bool(((ids < 0) | (ids >= vocabulary)).any()):
        raise RunError(_outside(labels, chosen, vocabulary))
    return Targets(ids, at, ahead=0 if shifted else 1)


def _outside(labels: torch.Tensor, chosen: torch.Tensor, vocabulary: int) -> Problem:
    row, column = (chosen & ((labels < 0) | (labels >= vocabulary))).nonzero()[0].tolist()
    return Problem(
        f"label {int(labels[row, column])} at position {column} of row {row} of the micro-batch lies outside the model's "
        f"vocabulary of {vocabulary:,}",
        fix="use the tokenizer that belongs to the model, or resize the model's embeddings",
    )


def nothing(hidden: torch.Tensor, *parameters: torch.Tensor | None) -> torch.Tensor:
    """Zero with a gradient of zeros for `hidden` and for each parameter, so that a rank without a target takes part in
    whatever the other ranks do with gradients. Sums over nothing: 0 times a value that is not finite would be NaN."""
    zero = hidden[:0].sum(dtype=torch.float32)
    for parameter in parameters:
        if parameter is not None:
            zero = zero + parameter[:0].sum(dtype=torch.float32)
    return zero
