"""Triton kernels over rows of raw logits [N, V]: statistics of rows, and rows turned into their gradients in place.

Raw logits z become logits: `cap * tanh(scale * z / cap) / temperature`, or `scale * z / temperature` without a cap. The
kernels take the factors of that in base 2: without a cap `pre` = scale * log2(e) / temperature, with one `pre` =
2 * log2(e) * scale / cap and `post` = cap * log2(e) / temperature. Logarithms and powers are of base 2 inside, natural
outside. `factor` is scale / temperature; it and `pre` are positive.

Rows lie `stride` elements apart and hold `padded` >= `columns` elements of which only `columns` count: where both are
multiples of 16 a thread moves 16 bytes at a time.

The kernels are bound by memory, but not by far: each instruction for each element counts. So factors are folded into
exponents, and the target's element is mended once a row instead of compared with every column."""

# Parameters of a kernel have no Python types: Triton reads annotations as its own.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LOWEST = tl.constexpr(-1e38)
ELEMENTS = 8
"""Neighbouring elements of a lane: 16 bytes of bf16."""


@triton.jit
def _tanh(z, pre):
    return 1.0 - 2.0 / (1.0 + tl.exp2(z * pre))


@triton.jit
def _logits(raw, pre, post, CAP: tl.constexpr):
    z = raw.to(tl.float32)
    if CAP:
        return _tanh(z, pre) * post
    return z * pre


@triton.jit
def _fold(raw, columns, inside, target, top, total, summed, moment, before, pre, post,
          CAP: tl.constexpr, SUM: tl.constexpr, ENTROPY: tl.constexpr, HIT: tl.constexpr):  # fmt: skip
    """Fold one block [R, E] into the running values of the R lanes."""
    z = _logits(raw, pre, post, CAP)
    if CAP:
        new = tl.maximum(top, tl.max(tl.where(inside, z, float("-inf")), 1))
        power = tl.exp2(tl.where(inside, z, float("-inf")) - new[:, None])
    else:
        plain = tl.where(inside, raw.to(tl.float32), float("-inf"))
        new = tl.maximum(top, tl.max(plain, 1) * pre)
        power = tl.exp2(tl.fma(plain, pre, -new[:, None]))
    shrink = tl.exp2(top - new)
    if SUM:
        summed += tl.sum(tl.where(inside, z, 0.0), 1)
    if ENTROPY:
        moment = moment * shrink + tl.sum(power * tl.where(inside, z, 0.0), 1)
    if HIT:
        before = tl.maximum(before, tl.max(tl.where(inside & (columns < target), z, float("-inf")), 1))
    return new, total * shrink + tl.sum(power, 1), summed, moment, before


@triton.jit
def _scan(row, columns, padded, target, pre, post, CAP: tl.constexpr, SUM: tl.constexpr,
          ENTROPY: tl.constexpr, HIT: tl.constexpr, LANES: tl.constexpr, ELEMENTS: tl.constexpr):  # fmt: skip
    """Base-2 statistics of one row: log-sum, sum of logits, their mean under the softmax, largest before the target, largest.

    The row is read in blocks of LANES x ELEMENTS; each lane keeps its own running maximum and sum (Milakov and Gimelshein
    2018, "Online normalizer calculation for softmax", arXiv 1805.02867), so that lanes meet once a row, not once a block."""
    offsets = tl.arange(0, LANES)[:, None] * ELEMENTS + tl.arange(0, ELEMENTS)[None, :]
    top = tl.full([LANES], LOWEST, tl.float32)
    total = tl.zeros([LANES], tl.float32)
    summed = tl.zeros([LANES], tl.float32)
    moment = tl.zeros([LANES], tl.float32)
    before = tl.full([LANES], LOWEST, tl.float32)
    whole = columns // (LANES * ELEMENTS) * (LANES * ELEMENTS)
    for start in range(0, whole, LANES * ELEMENTS):
        at = start + offsets
        raw = tl.load(row + at, eviction_policy="evict_last")
        top, total, summed, moment, before = _fold(raw, at, at >= 0, target, top, total, summed, moment, before,
                                                  pre, post, CAP, SUM, ENTROPY, HIT)  # fmt: skip
    if whole < columns:
        at = whole + offsets
        raw = tl.load(row + at, mask=at < padded, other=0.0)
        top, total, summed, moment, before = _fold(raw, at, at < columns, target, top, total, summed, moment, before,
                                                  pre, post, CAP, SUM, ENTROPY, HIT)  # fmt: skip
    peak = tl.max(top, 0)
    shrink = tl.exp2(top - peak)
    mass = tl.sum(total * shrink, 0)
    return peak + tl.log2(mass), tl.sum(summed, 0), tl.sum(moment * shrink, 0) / mass, tl.max(before, 0), peak


@triton.jit
def _descent(raw, shift, floor, factor, pre, post, CAP: tl.constexpr, SMOOTH: tl.constexpr):
    """(weight * softmax - floor) * d logits / d raw of a block, but for the target's own part.

    `shift` is the log-sum less the logarithm of `weight`, and without a cap also less that of `factor`."""
    z = raw.to(tl.float32)
    if CAP:
        bend = _tanh(z, pre)
        gradient = tl.exp2(bend * post - shift)
        if SMOOTH:
            gradient -= floor
        gradient *= factor * (1.0 - bend * bend)
    else:
        gradient = tl.exp2(tl.fma(z, pre, -shift))
        if SMOOTH:
            gradient -= floor * factor
    return gradient


@triton.jit
def statistics_kernel(raw, stride, targets, logp, logsum, entropy, hit, columns, padded, pre, post,
                      CAP: tl.constexpr, ENTROPY: tl.constexpr, HIT: tl.constexpr,
                      LANES: tl.constexpr, ELEMENTS: tl.constexpr):  # fmt: skip
    """Log-probability of each row's target and the row's log-sum; entropy (nats) and top-1 hit where asked."""
    index = tl.program_id(0).to(tl.int64)
    row = raw + index * stride
    target = tl.load(targets + index).to(tl.int32)
    struck = _logits(tl.load(row + target), pre, post, CAP)
    total, _, mean, before, peak = _scan(row, columns, padded, target, pre, post, CAP, False, ENTROPY, HIT,
                                         LANES, ELEMENTS)  # fmt: skip
    tl.store(logp + index, (struck - total) * LN2)
    tl.store(logsum + index, total * LN2)
    if ENTROPY:
        tl.store(entropy + index, (total - mean) * LN2)
    if HIT:
        # The first of equal maxima counts, as in `argmax`.
        tl.store(hit + index, tl.where((struck >= peak) & (struck > before), 1.0, 0.0))


@triton.jit
def gradient_kernel(raw, stride, targets, logsum, coefficient, entropy, pull, padded, factor, pre, post,
                    CAP: tl.constexpr, ENTROPY: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Turn rows of raw logits into `d (coefficient * logp(target) + pull * entropy) / d raw`."""
    index = tl.program_id(0).to(tl.int64)
    row = raw + index * stride
    target = tl.load(targets + index).to(tl.int32)
    total = tl.load(logsum + index) * LOG2E
    weight = tl.load(coefficient + index)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(row + at, mask=at < padded, other=0.0).to(tl.float32)
    slope = factor
    if CAP:
        bend = _tanh(z, pre)
        slope = factor * (1.0 - bend * bend)
        z = bend * post
    else:
        z *= pre
    push = weight
    if ENTROPY:
        push += tl.load(pull + index) * ((z - total) * LN2 + tl.load(entropy + index))
    gradient = (tl.where(at == target, weight, 0.0) - tl.exp2(z - total) * push) * slope
    tl.store(row + at, gradient.to(raw.dtype.element_ty), mask=at < padded)


@triton.jit
def loss_kernel(raw, stride, targets, loss, columns, padded, factor, pre, post, smoothing, z_loss,
                CAP: tl.constexpr, DFT: tl.constexpr, SMOOTH: tl.constexpr, Z: tl.constexpr,
                LANES: tl.constexpr, ELEMENTS: tl.constexpr):  # fmt: skip
    """The loss of each row and, in place, its gradient over the raw logits. One program reads its row twice, the second
    time from the end to the start: what was read last is likeliest to be in the L2 cache still."""
    index = tl.program_id(0).to(tl.int64)
    row = raw + index * stride
    kind = raw.dtype.element_ty
    target = tl.load(targets + index).to(tl.int32)
    held = tl.load(row + target)
    struck = _logits(held, pre, post, CAP)
    total, summed, _, _, _ = _scan(row, columns, padded, target, pre, post, CAP, SMOOTH, False, False, LANES, ELEMENTS)
    value = (total - struck) * LN2
    weight = 1.0
    pull = 1.0
    floor = 0.0
    if DFT:
        weight = tl.exp2(struck - total)
        pull = weight
        value = value * weight
    if SMOOTH:
        floor = smoothing / columns
        pull = 1.0 - smoothing
        value = (total - pull * struck - floor * summed) * LN2
    if Z:
        weight = weight + 2.0 * z_loss * total * LN2
        value += z_loss * (total * LN2) * (total * LN2)
    tl.store(loss + index, value)
    # Every thread has read the target's element before one of them overwrites it.
    tl.debug_barrier()
    shift = total
    if DFT or Z:
        shift -= tl.log2(weight)
    slope = factor
    if CAP:
        bend = _tanh(held.to(tl.float32), pre)
        slope = factor * (1.0 - bend * bend)
    else:
        shift -= tl.log2(factor)
    offsets = tl.arange(0, LANES)[:, None] * ELEMENTS + tl.arange(0, ELEMENTS)[None, :]
    whole = columns // (LANES * ELEMENTS) * (LANES * ELEMENTS)
    if whole < columns:
        at = whole + offsets
        mine = tl.load(row + at, mask=at < padded, other=0.0)
        gradient = _descent(mine, shift, floor, factor, pre, post, CAP, SMOOTH)
        tl.store(row + at, gradient.to(kind), mask=at < padded)
    for done in range(0, whole, LANES * ELEMENTS):
        at = whole - LANES * ELEMENTS - done + offsets
        mine = tl.load(row + at, eviction_policy="evict_first")
        gradient = _descent(mine, shift, floor, factor, pre, post, CAP, SMOOTH)
        tl.store(row + at, gradient.to(kind), eviction_policy="evict_first")
    # The block's own store to the target's element is over before the one that counts.
    tl.debug_barrier()
    tl.store(row + target, ((weight * tl.exp2(struck - total) - floor - pull) * slope).to(kind))


@triton.jit
def scale_kernel(source, factor, result, size, BLOCK: tl.constexpr):
    """`source` * the scalar at `factor`, rounded once to the type of `result`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source + at, mask=at < size).to(tl.float32) * tl.load(factor).to(tl.float32)
    tl.store(result + at, value.to(result.dtype.element_ty), mask=at < size)
