"""What users like to see of the distributions that targets are drawn from, and no loss needs: computed on request alone.

It costs one more product of hidden states and head, of the three that a training step takes there, at the positions of
targets only and a few rows of logits at a time, whatever head computes the losses."""

from __future__ import annotations

from typing import NamedTuple

import torch

from memcfg.engine.forward import causal_model, model_logits
from memcfg.head.targets import supervised

BUDGET = 64 << 20
"""Bytes of float32 logits that are alive at once; the work on them takes three times as much."""


class Looks(NamedTuple):
    """Of each target, float32 [B, L] each, zero where there is none: entropy in nats of the distribution that it was drawn
    from; the mean of its logits; 1.0 where it is the likeliest token."""

    entropy: torch.Tensor
    logits: torch.Tensor
    hit: torch.Tensor


@torch.no_grad()
def looks(model: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor, budget: int = BUDGET) -> Looks:
    """`hidden` [B, L, H] and unshifted `labels` [B, L], as a head is given them."""
    inner = causal_model(model)
    vocabulary = int(inner.config.get_text_config().vocab_size)  # type: ignore[union-attr, operator]
    targets = supervised(labels, vocabulary)
    rows = targets.hidden(hidden)
    found = torch.zeros(3, len(targets), device=hidden.device)
    size = max(1, budget // (4 * vocabulary))
    for start in range(0, len(targets), size):
        span = slice(start, start + size)
        logits = model_logits(inner, rows[None, span])[0].float()
        scores = logits.log_softmax(-1)
        found[0, span] = -(scores.exp() * scores).sum(-1)
        found[1, span] = logits.mean(-1)
        found[2, span] = (logits.argmax(-1) == targets.ids[span]).float()
    return Looks(*(targets.place(values, labels) for values in found))
