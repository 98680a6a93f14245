"""Triton kernels over rows of raw logits: statistics of a row, and the row turned into its gradient in place.

One program owns one row. A row is read in blocks of R x E elements; each of the R lanes keeps its own running maximum
and sum (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", arXiv 1805.02867), so that lanes meet
once a row and not once a block. The second pass runs from the end of the row to its start: what was read last is still
in the L2 cache. Logarithms and powers are of base 2 inside, natural outside.

Raw logits z become logits: `cap * tanh(scale * z / cap) / temperature`, or `scale * z / temperature` without a cap. The
kernels take the two factors of that in base 2: `pre` and `post`, with `pre` = scale * log2(e) / temperature when there
is no cap, and `pre` = 2 * log2(e) * scale / cap, `post` = cap * log2(e) / temperature when there is one."""

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
def _fold(raw, columns, inside, target, top, total, first, moment, before, pre, post,
          CAP: tl.constexpr, SUM: tl.constexpr, ENTROPY: tl.constexpr, HIT: tl.constexpr):  # fmt: skip
    """Fold one block [R, E] into the running values of the R lanes."""
    z = _logits(raw, pre, post, CAP)
    if SUM:
        first += tl.sum(tl.where(inside, z, 0.0), 1)
    z = tl.where(inside, z, float("-inf"))
    if HIT:
        before = tl.maximum(before, tl.max(tl.where(columns < target, z, float("-inf")), 1))
    new = tl.maximum(top, tl.max(z, 1))
    power = tl.exp2(z - new[:, None])
    shrink = tl.exp2(top - new)
    if ENTROPY:
        moment = moment * shrink + tl.sum(power * tl.where(inside, z, 0.0), 1)
    return new, total * shrink + tl.sum(power, 1), first, moment, before


@triton.jit
def _scan(row, columns, target, pre, post, CAP: tl.constexpr, SUM: tl.constexpr, ENTROPY: tl.constexpr,
          HIT: tl.constexpr, LANES: tl.constexpr, ELEMENTS: tl.constexpr):  # fmt: skip
    """Base-2 statistics of one row: log-sum, sum of logits, their mean under the softmax, largest before the target, largest."""
    offsets = tl.arange(0, LANES)[:, None] * ELEMENTS + tl.arange(0, ELEMENTS)[None, :]
    top = tl.full([LANES], LOWEST, tl.float32)
    total = tl.zeros([LANES], tl.float32)
    first = tl.zeros([LANES], tl.float32)
    moment = tl.zeros([LANES], tl.float32)
    before = tl.full([LANES], LOWEST, tl.float32)
    whole = columns // (LANES * ELEMENTS) * (LANES * ELEMENTS)
    for start in range(0, whole, LANES * ELEMENTS):
        at = start + offsets
        raw = tl.load(row + at)
        top, total, first, moment, before = _fold(raw, at, at >= 0, target, top, total, first, moment, before,
                                                  pre, post, CAP, SUM, ENTROPY, HIT)  # fmt: skip
    if whole < columns:
        at = whole + offsets
        raw = tl.load(row + at, mask=at < columns, other=0.0)
        top, total, first, moment, before = _fold(raw, at, at < columns, target, top, total, first, moment, before,
                                                  pre, post, CAP, SUM, ENTROPY, HIT)  # fmt: skip
    peak = tl.max(top, 0)
    shrink = tl.exp2(top - peak)
    mass = tl.sum(total * shrink, 0)
    return (peak + tl.log2(mass), tl.sum(first, 0), tl.sum(moment * shrink, 0) / mass, tl.max(before, 0), peak)


@triton.jit
def _slope(raw, logsum, weight, floor, factor, pre, post, CAP: tl.constexpr):
    """(weight * softmax - floor) * d logits / d raw for a block of raw logits."""
    z = raw.to(tl.float32)
    if CAP:
        bend = _tanh(z, pre)
        return (weight * tl.exp2(bend * post - logsum) - floor) * (factor * (1.0 - bend * bend))
    return weight * factor * tl.exp2(z * pre - logsum) - floor * factor


@triton.jit
def _overwrite(row, columns, target, logsum, weight, pull, floor, factor, pre, post,
               CAP: tl.constexpr, LANES: tl.constexpr, ELEMENTS: tl.constexpr):  # fmt: skip
    """Write `(weight * softmax - pull * [column = target] - floor) * d logits / d raw` over a row of raw logits."""
    kind = row.dtype.element_ty
    offsets = tl.arange(0, LANES)[:, None] * ELEMENTS + tl.arange(0, ELEMENTS)[None, :]
    struck = tl.load(row + target).to(tl.float32)
    # The target's element is read by every thread here and overwritten by one of them below.
    tl.debug_barrier()
    whole = columns // (LANES * ELEMENTS) * (LANES * ELEMENTS)
    if whole < columns:
        at = whole + offsets
        raw = tl.load(row + at, mask=at < columns, other=0.0)
        gradient = _slope(raw, logsum, weight, floor, factor, pre, post, CAP)
        tl.store(row + at, gradient.to(kind), mask=at < columns)
    for done in range(0, whole, LANES * ELEMENTS):
        at = whole - LANES * ELEMENTS - done + offsets
        raw = tl.load(row + at, eviction_policy="evict_first")
        gradient = _slope(raw, logsum, weight, floor, factor, pre, post, CAP)
        tl.store(row + at, gradient.to(kind), eviction_policy="evict_first")
    # And the block's own store to that element must be over before the one store that counts.
    tl.debug_barrier()
    gradient = _slope(struck, logsum, weight, floor, factor, pre, post, CAP)
    chain = factor
    if CAP:
        bend = _tanh(struck, pre)
        chain = factor * (1.0 - bend * bend)
    tl.store(row + target, (gradient - pull * chain).to(kind))


@triton.jit
def statistics_kernel(raw, stride, targets, logp, logsum, entropy, hit, columns, pre, post,
                      CAP: tl.constexpr, ENTROPY: tl.constexpr, HIT: tl.constexpr,
                      LANES: tl.constexpr, ELEMENTS: tl.constexpr):  # fmt: skip
    """Log-probability of each row's target and the row's log-sum; entropy (nats) and top-1 hit where asked."""
    index = tl.program_id(0).to(tl.int64)
    row = raw + index * stride
    target = tl.load(targets + index)
    struck = _logits(tl.load(row + target), pre, post, CAP)
    total, _, mean, before, peak = _scan(row, columns, target, pre, post, CAP, False, ENTROPY, HIT, LANES, ELEMENTS)
    tl.store(logp + index, (struck - total) * LN2)
    tl.store(logsum + index, total * LN2)
    if ENTROPY:
        tl.store(entropy + index, (total - mean) * LN2)
    if HIT:
        # The first of equal maxima counts, as in `argmax`.
        tl.store(hit + index, tl.where((struck >= peak) & (struck > before), 1.0, 0.0))


@triton.jit
def gradient_kernel(raw, stride, targets, logsum, coefficient, columns, factor, pre, post,
                    CAP: tl.constexpr, LANES: tl.constexpr, ELEMENTS: tl.constexpr):  # fmt: skip
    """Turn rows of raw logits into `coefficient * d logp(target) / d raw`."""
    index = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + index)
    total = tl.load(logsum + index) * LOG2E
    weight = -tl.load(coefficient + index)
    _overwrite(raw + index * stride, columns, target, total, weight, weight, 0.0, factor, pre, post,
               CAP, LANES, ELEMENTS)  # fmt: skip


@triton.jit
def loss_kernel(raw, stride, targets, loss, columns, factor, pre, post, smoothing, z_loss,
                CAP: tl.constexpr, DFT: tl.constexpr, SMOOTH: tl.constexpr, Z: tl.constexpr,
                LANES: tl.constexpr, ELEMENTS: tl.constexpr):  # fmt: skip
    """The loss of each row and, in place, its gradient over the raw logits: one kernel, so that the second reading of a
    row finds it in the cache."""
    index = tl.program_id(0).to(tl.int64)
    row = raw + index * stride
    target = tl.load(targets + index)
    struck = _logits(tl.load(row + target), pre, post, CAP)
    total, summed, _, _, _ = _scan(row, columns, target, pre, post, CAP, SMOOTH, False, False, LANES, ELEMENTS)
    logp = (struck - total) * LN2
    value = -logp
    weight = 1.0
    pull = 1.0
    floor = 0.0
    if DFT:
        chance = tl.exp2(struck - total)
        value = value * chance
        weight = chance
        pull = chance
    if SMOOTH:
        floor = smoothing / columns
        pull = 1.0 - smoothing
        value = (total - pull * struck - floor * summed) * LN2
    if Z:
        weight = weight + 2.0 * z_loss * total * LN2
        value += z_loss * (total * LN2) * (total * LN2)
    tl.store(loss + index, value)
    _overwrite(row, columns, target, total, weight, pull, floor, factor, pre, post, CAP, LANES, ELEMENTS)


@triton.jit
def scale_kernel(source, factor, result, size, BLOCK: tl.constexpr):
    """`source` * the scalar at `factor`, rounded once to the type of `result`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source + at, mask=at < size).to(tl.float32) * tl.load(factor).to(tl.float32)
    tl.store(result + at, value.to(result.dtype.element_ty), mask=at < size)
