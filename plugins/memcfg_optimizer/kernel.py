"""The step of `stochastic` as one Triton kernel: each element is read once and written once, and nothing lies beside them."""

# Parameters of a kernel have no Python types: Triton reads annotations as its own.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _mixed(x):
    """The finalizer of MurmurHash3 over uint32: every bit of `x` changes every bit of what comes out."""
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def _rounded(values, noise):
    """float32 rounded to bfloat16, up as often as `noise` [16 random bits] says. What is not finite stays as it is."""
    bits = values.to(tl.uint32, bitcast=True)
    up = ((bits + noise) & 0xFFFF0000).to(tl.float32, bitcast=True)
    return tl.where((bits & 0x7F800000) == 0x7F800000, values, up).to(tl.bfloat16)


@triton.jit(do_not_specialize=["key", "other"])
def adamw_kernel(weights, gradients, means, squares, count, key, other, kept, rate, first, second, unbias, eps,
                 ROUND: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Counts that are multiples of 16 are known as such when it is compiled: a thread then moves 16 bytes at a time.

    `kept` is what weight decay leaves, `rate` the learning rate over the first moment's bias correction, `first` and
    `second` the shares of the new gradient, `unbias` one over the second moment's correction. `key` and `other` make the noise."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    gradient = tl.load(gradients + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.load(means + at, mask=inside, other=0.0).to(tl.float32)
    square = tl.load(squares + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(weights + at, mask=inside, other=0.0).to(tl.float32)
    mean = mean + (gradient - mean) * first
    square = square * (1.0 - second) + gradient * gradient * second
    value = value * kept - rate * mean / (tl.sqrt(square * unbias) + eps)
    one = _mixed(_mixed(at.to(tl.uint32) ^ key.to(tl.uint32)) + other.to(tl.uint32))
    two = _mixed(one + 0x9E3779B9)
    tl.store(means + at, _rounded(mean, one & 0xFFFF), mask=inside)
    tl.store(squares + at, _rounded(square, one >> 16), mask=inside)
    if ROUND:
        tl.store(weights + at, _rounded(value, two & 0xFFFF), mask=inside)
    else:
        tl.store(weights + at, value.to(weights.dtype.element_ty), mask=inside)


@torch.library.custom_op("memcfg::stochastic_adamw_", mutates_args=("weights", "means", "squares"))
def stochastic_adamw_(
    weights: torch.Tensor, gradients: torch.Tensor, means: torch.Tensor, squares: torch.Tensor, key: int, other: int,
    kept: float, rate: float, first: float, second: float, unbias: float, eps: float,
) -> None:  # fmt: skip
    """One step of N elements, all tensors in one order and without gaps; `means` and `squares` are bfloat16."""
    count = weights.numel()
    adamw_kernel[(triton.cdiv(count, BLOCK),)](
        weights, gradients, means, squares, count, key, other, kept, rate, first, second, unbias, eps,
        ROUND=weights.dtype == torch.bfloat16, BLOCK=BLOCK,
    )  # fmt: skip


stochastic_adamw_.register_fake(lambda *arguments, **keywords: None)
