"""Three differentiable functions of hidden states and a linear layer's parameters.

    loss_sum, trained head    logits, d hidden, d weight: three products, all in the forward
    loss_sum, frozen head     logits, d hidden: two
    logprobs, trained head    logits; again in the backward, then d hidden and d weight: four
    logprobs, frozen head     logits, d hidden of each log-probability: two; the backward scales row by row
    distributions             logits; again in the backward, then what needs a gradient: four, or three where it is frozen

Gradients are kept in float32 and rounded once, after the incoming gradient is multiplied in."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from memcfg_loss.fused.products import Layer, Needs
from memcfg_loss.fused.score import Rows, Score, ascend, descend, statistics
from memcfg_loss.tokens import NLL

Maybe = torch.Tensor | None


def loss_sum(hidden: torch.Tensor, weight: torch.Tensor, ids: torch.Tensor, score: Score, *, bias: Maybe = None,
             low: Maybe = None, up: Maybe = None, at: Maybe = None) -> torch.Tensor:  # fmt: skip
    """Sum of the loss over N > 0 targets `ids`, float32 scalar. The other arguments are those of `Layer` and `Rows`."""
    if torch.is_grad_enabled():
        return _Loss.apply(hidden, weight, bias, low, up, ids, at, score)
    assert score.loss is not None
    rows, layer = Rows(hidden, low, at, ids), _layer(hidden, weight, bias, up, score)
    if isinstance(score.loss, NLL) and score.loss.shaped:
        with _no_autocast(hidden):
            return descend(rows, layer, score, Needs(False, False))[0].sum()
    return score.loss.value(_scored(rows, layer, score)).sum()


def logprobs(hidden: torch.Tensor, weight: torch.Tensor, ids: torch.Tensor, score: Score, *, bias: Maybe = None,
             low: Maybe = None, up: Maybe = None, at: Maybe = None) -> torch.Tensor:  # fmt: skip
    """Log-probabilities of N > 0 targets `ids`, float32 [N]. The other arguments are those of `Layer` and `Rows`."""
    if torch.is_grad_enabled():
        return _LogProbs.apply(hidden, weight, bias, low, up, ids, at, score)
    return _scored(Rows(hidden, low, at, ids), _layer(hidden, weight, bias, up, score), score)


def distributions(hidden: torch.Tensor, weight: torch.Tensor, ids: torch.Tensor, score: Score, *, bias: Maybe = None,
                  low: Maybe = None, up: Maybe = None, at: Maybe = None) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Log-probability of N > 0 targets `ids`, and entropy (nats) of the distribution that each was drawn from: float32 [N]
    both, both with gradient. The other arguments are those of `Layer` and `Rows`."""
    if torch.is_grad_enabled():
        return _Distributions.apply(hidden, weight, bias, low, up, ids, at, score)
    rows, layer = Rows(hidden, low, at, ids), _layer(hidden, weight, bias, up, score)
    entropy = rows.values(layer)
    with _no_autocast(hidden):
        return statistics(rows, layer, score, entropy)[0], entropy


def statistics_of(hidden: torch.Tensor, weight: torch.Tensor, ids: torch.Tensor, score: Score, *, bias: Maybe = None,
                  low: Maybe = None, up: Maybe = None, at: Maybe = None) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Log-probability, entropy in nats, and 1.0 where the target is the likeliest token, of N > 0 targets: [N] each."""
    rows, layer = Rows(hidden, low, at, ids), _layer(hidden, weight, bias, up, score)
    entropy, hit = rows.values(layer), rows.values(layer)
    with _no_autocast(hidden):
        return statistics(rows, layer, score, entropy, hit)[0], entropy, hit


def _scored(rows: Rows, layer: Layer, score: Score) -> torch.Tensor:
    with _no_autocast(rows.hidden):
        return statistics(rows, layer, score)[0]


def compute_dtype(hidden: torch.Tensor, weight: torch.Tensor, score: Score) -> torch.dtype:
    """The type in which the model itself would multiply: autocast's where it is on, the weight's otherwise. At least float32
    where the score asks for it: the product of two bfloat16 numbers is exact in it."""
    if score.float32:
        return torch.promote_types(weight.dtype, torch.float32)
    kind = _kind(hidden)
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def _layer(hidden: torch.Tensor, weight: torch.Tensor, bias: Maybe, up: Maybe, score: Score) -> Layer:
    dtype = compute_dtype(hidden, weight, score)
    return Layer(weight.to(dtype), None if bias is None else bias.to(dtype), None if up is None else up.to(dtype))


def _kind(tensor: torch.Tensor) -> str:
    """Autocast knows no `meta`: it is asked about the CPU then."""
    return "cpu" if tensor.device.type == "meta" else tensor.device.type


class Like(NamedTuple):
    """Shape and type of a tensor: keeping the tensor itself would keep its memory."""

    shape: torch.Size
    dtype: torch.dtype


def _shapes(*tensors: Maybe) -> list[Like | None]:
    return [None if x is None else Like(x.shape, x.dtype) for x in tensors]


def _scaled(gradient: Maybe, by: torch.Tensor, like: Like | None, score: Score) -> Maybe:
    """A gradient times the scalar `by`, rounded once to the type of `like`; in place where that is its own type."""
    if gradient is None or like is None:
        return None
    if score.kernel == "triton" and like.dtype != gradient.dtype:
        return score.rows.scaled_to(gradient, by, like.dtype)
    return gradient.mul_(by).to(like.dtype)


def _spread(gradient: Maybe, at: Maybe, like: Like | None) -> Maybe:
    """A gradient over the N rows that were read, as one over all M."""
    if gradient is None or like is None or at is None:
        return gradient
    return gradient.new_zeros(like.shape).index_copy_(0, at, gradient)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: Maybe, low: Maybe, up: Maybe,
                ids: torch.Tensor, at: Maybe, score: Score) -> torch.Tensor:  # fmt: skip
        layer, needs = _layer(hidden, weight, bias, up, score), Needs(*ctx.needs_input_grad[:5])
        with _no_autocast(hidden):
            value, found = descend(Rows(hidden, low, at, ids), layer, score, needs)
        # An attribute, not `save_for_backward`: these are no activations, and hooks that move saved tensors to the host
        # must leave them alone.
        ctx.found, ctx.like, ctx.at, ctx.score = list(found), _shapes(hidden, weight, bias, low, up), at, score
        return value.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        found = _taken(ctx)
        # Each float32 gradient is let go as soon as it is rounded: two of them never lie beside their copies.
        scaled = [_scaled(found.pop(0), gradient, like, ctx.score) for like in ctx.like]
        return _inputs(scaled, ctx.at, ctx.like)


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: Maybe, low: Maybe, up: Maybe,
                ids: torch.Tensor, at: Maybe, score: Score) -> torch.Tensor:  # fmt: skip
        layer, ctx.needs, ctx.score = _layer(hidden, weight, bias, up, score), Needs(*ctx.needs_input_grad[:5]), score
        rows = Rows(hidden, low, at, ids)
        ctx.frozen = not (ctx.needs.weight or ctx.needs.bias or ctx.needs.up)
        ctx.like = _shapes(hidden, weight, bias, low, up)
        with _no_autocast(hidden):
            if ctx.frozen:
                value, found = descend(rows, layer, score, ctx.needs)
                ctx.found, ctx.at = [found.hidden, None, None, found.low, None], at
                return value.neg_()
            logp, logsum = statistics(rows, layer, score)
        ctx.dtype = layer.weight.dtype
        ctx.save_for_backward(hidden, weight, bias, low, up, ids, at, logsum)
        return logp

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        return _rowwise(ctx, gradient) if ctx.frozen else _again(ctx, gradient)


class _Distributions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: Maybe, low: Maybe, up: Maybe,
                ids: torch.Tensor, at: Maybe, score: Score) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        layer, ctx.needs, ctx.score = _layer(hidden, weight, bias, up, score), Needs(*ctx.needs_input_grad[:5]), score
        rows = Rows(hidden, low, at, ids)
        ctx.like, ctx.dtype = _shapes(hidden, weight, bias, low, up), layer.weight.dtype
        ctx.set_materialize_grads(False)  # an entropy that nothing learns from costs no work on the logits
        entropy = rows.values(layer)
        with _no_autocast(hidden):
            logp, logsum = statistics(rows, layer, score, entropy)
        ctx.save_for_backward(hidden, weight, bias, low, up, ids, at, logsum, entropy)
        return logp, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Maybe, pull: Maybe) -> tuple[Any, ...]:
        if gradient is None and pull is None:
            return (None,) * 8
        return _again(ctx, torch.zeros_like(pull) if gradient is None else gradient, pull)  # type: ignore[arg-type]


def _taken(ctx: Any) -> list[Maybe]:
    """The gradients that the forward left. They are scaled in place, so there is one backward."""
    found, ctx.found = ctx.found, None
    if found is None:
        raise RuntimeError("the gradients of a chunked loss were used up by the first backward")
    return list(found)


def _rowwise(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    """The backward of log-probabilities under a frozen head: the gradient of each row times its own factor."""
    by = gradient.neg().unsqueeze(1)
    found = _taken(ctx)
    scaled = [None if g is None else g.mul_(by).to(like.dtype) for g, like in zip(found, ctx.like, strict=True)]
    return _inputs(scaled, ctx.at, ctx.like)


def _again(ctx: Any, gradient: torch.Tensor, pull: Maybe = None) -> tuple[Any, ...]:
    """The backward with logits made once more, now that each row's factors are known: `gradient` that of its log-probability,
    `pull` that of its entropy."""
    hidden, weight, bias, low, up, ids, at, logsum, *entropy = ctx.saved_tensors
    cast = [None if x is None else x.to(ctx.dtype) for x in (weight, bias, up)]
    layer = Layer(cast[0], cast[1], cast[2])  # type: ignore[arg-type]
    more = () if pull is None else (*entropy, pull.contiguous())
    with _no_autocast(hidden):
        found = ascend(Rows(hidden, low, at, ids), layer, ctx.score, ctx.needs, logsum, gradient.contiguous(), *more)
    rounded = [None if g is None else g.to(like.dtype) for g, like in zip(found, ctx.like, strict=True)]
    return _inputs(rounded, at, ctx.like)


def _inputs(gradients: list[Maybe], at: Maybe, like: list[Like | None]) -> tuple[Any, ...]:
    """Gradients of both functions' inputs from those over (hidden, weight, bias, low, up)."""
    hidden, weight, bias, low, up = gradients
    return _spread(hidden, at, like[0]), weight, bias, _spread(low, at, like[3]), up, None, None, None


def _no_autocast(hidden: torch.Tensor) -> Any:
    return torch.autocast(_kind(hidden), enabled=False)
