"""Triton kernels over rows of raw logits [N, V]: statistics of rows, and rows turned into their gradients in place.

Raw logits z become logits: `cap * tanh(scale * z / cap) / temperature`, or `scale * z / temperature` without a cap. The
kernels take the factors of that in base 2: without a cap `pre` = scale * log2(e) / temperature, with one `pre` =
2 * log2(e) * scale / cap and `post` = cap * log2(e) / temperature. Logarithms and powers are of base 2 inside, natural
outside. `factor` is scale / temperature.

Rows lie `stride` elements apart and hold `padded` >= `columns` elements of which only `columns` count: where both are
multiples of 16 a thread moves 16 bytes at a time."""

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
def _fold(raw, columns, inside, target, top, total, moment, before, pre, post,
          CAP: tl.constexpr, ENTROPY: tl.constexpr, HIT: tl.constexpr):  # fmt: skip
    """Fold one block [R, E] into the running values of the R lanes."""
    z = _logits(raw, pre, post, CAP)
    z = tl.where(inside, z, float("-inf"))
    if HIT:
        before = tl.maximum(before, tl.max(tl.where(columns < target, z, float("-inf")), 1))
    new = tl.maximum(top, tl.max(z, 1))
    power = tl.exp2(z - new[:, None])
    shrink = tl.exp2(top - new)
    if ENTROPY:
        moment = moment * shrink + tl.sum(power * tl.where(inside, z, 0.0), 1)
    return new, total * shrink + tl.sum(power, 1), moment, before


@triton.jit
def _scan(row, columns, padded, target, pre, post, CAP: tl.constexpr, ENTROPY: tl.constexpr,
          HIT: tl.constexpr, LANES: tl.constexpr, ELEMENTS: tl.constexpr):  # fmt: skip
    """Base-2 statistics of one row: log-sum, mean of the logits under the softmax, largest before the target, largest.

    The row is read in blocks of LANES x ELEMENTS; each lane keeps its own running maximum and sum (Milakov and Gimelshein
    2018, "Online normalizer calculation for softmax", arXiv 1805.02867), so that lanes meet once a row, not once a block."""
    offsets = tl.arange(0, LANES)[:, None] * ELEMENTS + tl.arange(0, ELEMENTS)[None, :]
    top = tl.full([LANES], LOWEST, tl.float32)
    total = tl.zeros([LANES], tl.float32)
    moment = tl.zeros([LANES], tl.float32)
    before = tl.full([LANES], LOWEST, tl.float32)
    whole = columns // (LANES * ELEMENTS) * (LANES * ELEMENTS)
    for start in range(0, whole, LANES * ELEMENTS):
        at = start + offsets
        raw = tl.load(row + at)
        top, total, moment, before = _fold(raw, at, at >= 0, target, top, total, moment, before,
                                                  pre, post, CAP, ENTROPY, HIT)  # fmt: skip
    if whole < columns:
        at = whole + offsets
        raw = tl.load(row + at, mask=at < padded, other=0.0)
        top, total, moment, before = _fold(raw, at, at < columns, target, top, total, moment, before,
                                                  pre, post, CAP, ENTROPY, HIT)  # fmt: skip
    peak = tl.max(top, 0)
    shrink = tl.exp2(top - peak)
    mass = tl.sum(total * shrink, 0)
    return peak + tl.log2(mass), tl.sum(moment * shrink, 0) / mass, tl.max(before, 0), peak


@triton.jit
def _descent(raw, logsum, weight, floor, at, target, pull, factor, pre, post, CAP: tl.constexpr):
    """(weight * softmax - floor - pull * [column = target]) * d logits / d raw for columns `at` of a row."""
    z = raw.to(tl.float32)
    if CAP:
        bend = _tanh(z, pre)
        slope = factor * (1.0 - bend * bend)
        z = bend * post
    else:
        slope = factor
        z = z * pre
    return (weight * tl.exp2(z - logsum) - tl.where(at == target, pull + floor, floor)) * slope


@triton.jit
def statistics_kernel(raw, stride, targets, logp, logsum, entropy, hit, columns, padded, pre, post,
                      CAP: tl.constexpr, ENTROPY: tl.constexpr, HIT: tl.constexpr,
                      LANES: tl.constexpr, ELEMENTS: tl.constexpr):  # fmt: skip
    """Log-probability of each row's target and the row's log-sum; entropy (nats) and top-1 hit where asked."""
    index = tl.program_id(0).to(tl.int64)
    row = raw + index * stride
    target = tl.load(targets + index)
    struck = _logits(tl.load(row + target), pre, post, CAP)
    total, mean, before, peak = _scan(row, columns, padded, target, pre, post, CAP, ENTROPY, HIT, LANES, ELEMENTS)
    tl.store(logp + index, (struck - total) * LN2)
    tl.store(logsum + index, total * LN2)
    if ENTROPY:
        tl.store(entropy + index, (total - mean) * LN2)
    if HIT:
        # The first of equal maxima counts, as in `argmax`.
        tl.store(hit + index, tl.where((struck >= peak) & (struck > before), 1.0, 0.0))


@triton.jit
def gradient_kernel(raw, stride, targets, logsum, coefficient, padded, factor, pre, post,
                    CAP: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Turn rows of raw logits into `coefficient * d logp(target) / d raw`."""
    index = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + index)
    total = tl.load(logsum + index) * LOG2E
    weight = -tl.load(coefficient + index)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(raw + index * stride + at, mask=at < padded, other=0.0)
    gradient = _descent(mine, total, weight, 0.0, at, target, weight, factor, pre, post, CAP)
    tl.store(raw + index * stride + at, gradient.to(raw.dtype.element_ty), mask=at < padded)


@triton.jit
def _meet(row, slice, top, total, summed, partial, arrived, SLICES: tl.constexpr, SLOTS: tl.constexpr):
    """Exchange the slices' maxima, sums of powers and sums of logits: each program of a row writes its own, waits until all
    have, and reads all. Programs start in order, so the ones waited for are running or next to run."""
    mine = partial + (row * SLICES + slice) * 3
    tl.store(mine, top)
    tl.store(mine + 1, total)
    tl.store(mine + 2, summed)
    tl.atomic_add(arrived + row, 1, sem="release")
    while tl.atomic_cas(arrived + row, SLICES, SLICES, sem="acquire") != SLICES:
        pass
    slot = tl.arange(0, SLOTS)
    theirs = partial + (row * SLICES + slot) * 3
    tops = tl.load(theirs, mask=slot < SLICES, other=LOWEST, cache_modifier=".cg")
    totals = tl.load(theirs + 1, mask=slot < SLICES, other=0.0, cache_modifier=".cg")
    sums = tl.load(theirs + 2, mask=slot < SLICES, other=0.0, cache_modifier=".cg")
    peak = tl.max(tops, 0)
    return peak, tl.sum(totals * tl.exp2(tops - peak), 0), tl.sum(sums, 0)


@triton.jit
def loss_kernel(raw, stride, targets, loss, columns, padded, length, partial, arrived, factor, pre, post, smoothing,
                z_loss, CAP: tl.constexpr, DFT: tl.constexpr, SMOOTH: tl.constexpr, Z: tl.constexpr,
                SLICES: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr, HOLD: tl.constexpr):  # fmt: skip
    """The loss of each row and, in place, its gradient over the raw logits. A row is split into slices that fit into a
    program's registers: logits are read once and written once."""
    index = (tl.program_id(0) // SLICES).to(tl.int64)
    slice = tl.program_id(0) % SLICES
    row = raw + index * stride
    target = tl.load(targets + index)
    held = tl.load(row + target)
    struck = _logits(held, pre, post, CAP)
    at = slice * length + tl.arange(0, BLOCK)
    # Rows are padded to `padded` columns: whole vectors are moved, and what lies beyond `columns` counts for nothing.
    within = at < tl.minimum(slice * length + length, padded)
    mine = tl.load(row + at, mask=within, other=0.0)
    z = _logits(mine, pre, post, CAP)
    real = within & (at < columns)
    z = tl.where(real, z, float("-inf"))
    peak = tl.maximum(tl.max(z, 0), LOWEST)
    mass = tl.sum(tl.exp2(z - peak), 0)
    summed = 0.0
    if SMOOTH:
        summed = tl.sum(tl.where(real, z, 0.0), 0)
    if SLICES > 1:
        peak, mass, summed = _meet(index, slice, peak, mass, summed, partial, arrived, SLICES, SLOTS)
    else:
        # The target's element is read by every thread above and overwritten by one of them below.
        tl.debug_barrier()
    total = peak + tl.log2(mass)
    value = (total - struck) * LN2
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
    if slice == 0:
        tl.store(loss + index, value)
    if not HOLD:
        mine = tl.load(row + at, mask=within, other=0.0, cache_modifier=".cg")
    gradient = _descent(mine, total, weight, floor, at, target, pull, factor, pre, post, CAP)
    tl.store(row + at, gradient.to(raw.dtype.element_ty), mask=within)


@triton.jit
def scale_kernel(source, factor, result, size, BLOCK: tl.constexpr):
    """`source` * the scalar at `factor`, rounded once to the type of `result`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source + at, mask=at < size).to(tl.float32) * tl.load(factor).to(tl.float32)
    tl.store(result + at, value.to(result.dtype.element_ty), mask=at < size)
