"""The two differentiable functions of the chunked head.

Both take `hidden` [N, H], `weight` [V, H], `bias` [V] or None, and a `Sweep` that knows the rest."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from memcfg.batch import TokenLoss
from memcfg_loss.sweep import Gradients, Sweep

Tensor = torch.Tensor


class ChunkedLoss(torch.autograd.Function):
    """Sum of a token loss, its gradients computed in the forward: nothing is left to recompute in the backward, so a
    trained head costs three matrix products a chunk and a frozen one two."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, sweep: Sweep, loss: TokenLoss) -> Tensor:
        total = torch.zeros((), dtype=sweep.precision, device=hidden.device)
        gradients = Gradients.like(hidden, weight, bias, ctx.needs_input_grad, sweep)

        def score(_: slice, logp: Tensor) -> Tensor | None:
            total.add_(loss.value(logp).sum())
            return loss.derivative(logp) if gradients.wanted else None

        sweep.run(hidden, weight, bias, score, gradients)
        # An attribute, not `save_for_backward`: these are no activations, and hooks that move saved tensors to the host
        # must leave them alone.
        ctx.gradients = gradients
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("the gradients of a chunked loss were used up by the first backward")
        return (*gradients.scaled_(gradient), None, None)


class ChunkedLogProbs(torch.autograd.Function):
    """Log-probability of each target [N]. What multiplies each of them is known only in the backward, which therefore
    builds the logits a second time."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, sweep: Sweep) -> Tensor:
        found = torch.empty(len(hidden), dtype=sweep.precision, device=hidden.device)

        def score(span: slice, logp: Tensor) -> None:
            found[span] = logp

        sweep.run(hidden, weight, bias, score, Gradients())
        ctx.save_for_backward(hidden, weight, bias)
        ctx.sweep = sweep
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        gradients = Gradients.like(hidden, weight, bias, ctx.needs_input_grad, ctx.sweep)
        ctx.sweep.run(hidden, weight, bias, lambda span, _: gradient[span], gradients)
        return (*gradients.cast(), None)
