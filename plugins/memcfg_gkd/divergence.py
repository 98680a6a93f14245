"""The generalised Jensen-Shannon divergence of a student from a teacher, without logits of all positions.

Notation: s and t the student's and the teacher's probabilities of the next token, m = (1 - beta) s + beta t.

    beta = 0    KL(t || s)          beta = 1    KL(s || t)
    between     beta KL(t || m) + (1 - beta) KL(s || m)            https://arxiv.org/abs/2306.13649, equation 1

Only some rows of logits are alive at once, the student's and the teacher's; the gradient is made with them in the forward,
so that none is computed again in the backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import log_softmax

Tensor = torch.Tensor
Logits = Callable[[Tensor], Tensor]
"""Hidden states [C, H] to logits [C, V]."""


def divergence(student: Tensor, teacher: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """The sum of the divergence over C rows of logits [C, V], and its gradient over the student's logits [C, V]."""
    mine, its = log_softmax(student, -1), log_softmax(teacher, -1)
    if beta == 0:
        return (its.exp() * (its - mine)).sum(), mine.exp() - its.exp()
    probability = mine.exp()
    if beta == 1:
        parts = probability * (mine - its)
        return parts.sum(), parts - probability * parts.sum(-1, keepdim=True)
    mixed = torch.logaddexp(mine + math.log1p(-beta), its + math.log(beta))
    parts = probability * (mine - mixed)
    value = beta * (its.exp() * (its - mixed)).sum() + (1 - beta) * parts.sum()
    return value, (1 - beta) * (parts - probability * parts.sum(-1, keepdim=True))


class Divergence(torch.autograd.Function):
    """The sum of the divergence over N positions: a scalar, float32 or wider.

    `hidden` [N, H] are the student's hidden states, `teacher` [N, J] the teacher's; `logits` and `teacher_logits` are the
    two output heads; `parameters` are those of the student's head that are trained."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, teacher: Tensor, logits: Logits, teacher_logits: Logits, beta: float, rows: int,
        *parameters: Tensor,
    ) -> Tensor:  # fmt: skip
        precision = torch.promote_types(hidden.dtype, torch.float32)
        wanted = any(ctx.needs_input_grad)
        total = torch.zeros((), dtype=precision, device=hidden.device)
        over_hidden = torch.zeros_like(hidden) if wanted else None
        sums = (
            [torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in parameters]
            if wanted
            else []
        )
        for span in spans(len(hidden), rows):
            its = teacher_logits(teacher[span]).to(precision)
            with torch.set_grad_enabled(wanted):
                chunk = hidden[span].detach().requires_grad_(wanted)
                raw = logits(chunk)
            value, slope = divergence(raw.detach().to(precision), its, beta)
            total += value
            if over_hidden is not None:
                found = torch.autograd.grad(raw, [chunk, *parameters], slope.to(raw.dtype))
                over_hidden[span] = found[0]
                for so_far, more in zip(sums, found[1:], strict=True):
                    so_far += more
        # attributes, not saved tensors: these are no activations, and hooks that move those must leave them alone
        ctx.over_hidden, ctx.sums, ctx.dtypes = over_hidden, sums, [p.dtype for p in parameters]
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        over_parameters = [(s * gradient).to(dtype) for s, dtype in zip(ctx.sums, ctx.dtypes, strict=True)]
        return (ctx.over_hidden * gradient, None, None, None, None, None, *over_parameters)


def spans(count: int, rows: int) -> Iterator[slice]:
    """Pieces of equal size, as few as the limit allows."""
    pieces = max(1, -(-count // max(rows, 1)))
    size = max(1, -(-count // pieces))
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
