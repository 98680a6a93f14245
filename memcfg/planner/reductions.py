"""What a sum over many rows takes beyond its result: a buffer in which blocks of threads leave their parts.

A few outputs of many inputs each (the gradient of a norm's weight) are summed by several blocks an output, and the buffer can be
larger than the input. How the work is cut up is what `setReduceConfig` of torch's `aten/src/ATen/native/cuda/Reduce.cuh`
does; the names are those used there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

MAX_THREADS: Final = 512
WARP: Final = 32
WIDEST: Final = 4
"""Outputs, or inputs, that one thread reads at once at most."""
FEWEST_VALUES: Final = 16
MOST_VALUES: Final = 256
"""Values that a thread sums: from the larger one on the work is split over blocks, to no fewer than the smaller one each."""
SEMAPHORE: Final = 4


def buffers(tensor: torch.Tensor, dims: Sequence[int], processors: int, threads: int) -> list[int]:
    """Bytes of the buffer and of its semaphores for a sum of `tensor` over `dims`, or nothing where one block an output is
    enough. `processors` with `threads` each are the card's. Sums of half precision are kept in float32."""
    reduced = [(tensor.stride(d), tensor.shape[d]) for d in range(tensor.dim()) if d in dims and tensor.shape[d] > 1]
    kept = [(tensor.stride(d), tensor.shape[d]) for d in range(tensor.dim()) if d not in dims and tensor.shape[d] > 1]
    outputs, inputs = _product(kept), _product(reduced)
    if not outputs * inputs or not reduced:
        return []
    along = not kept or min(reduced) < min(kept)
    wide = 1 if along else _vector(min(kept), [stride for stride, _ in (*reduced, *kept)])
    first, second = (inputs, outputs) if along else (outputs // wide, inputs)
    if along and min(reduced)[0] == 1 and inputs > 4 * WARP and len(_merged(reduced)) == 1:
        first //= WIDEST
    width, height = _block(first, second, MAX_THREADS // wide)
    step_in, step_out = (width, 1) if along else (1, width)
    if -(-inputs // step_in) < min(height * FEWEST_VALUES, MOST_VALUES):
        return []
    step_in *= height
    grid, values = -(-(outputs // wide) // step_out), -(-inputs // step_in)
    target = processors * (threads // (width * height))
    if values < MOST_VALUES or grid > target:
        return []
    blocks = max(min(-(-target // grid), -(-values // FEWEST_VALUES)), -(-values // MOST_VALUES))
    if blocks == 1:
        return []
    size = max(4, tensor.element_size()) * outputs * blocks * (1 if along else width * wide)
    return [size, SEMAPHORE * grid]


def _block(first: int, second: int, most: int) -> tuple[int, int]:
    """Threads of a block along the faster and the slower dimension."""
    wide, high = _power(first, most), _power(second, most)
    height = min(high, most // min(wide, WARP))
    return min(wide, most // height), height


def _power(number: int, most: int) -> int:
    """The largest power of two that is no larger than both."""
    return most if number >= most else 1 << (max(1, number).bit_length() - 1)


def _vector(fastest: tuple[int, int], strides: Sequence[int]) -> int:
    """Outputs that lie side by side and are read at once."""
    if fastest[0] != 1:
        return 1
    wide = WIDEST
    for number in (fastest[1], *(stride for stride in strides if stride != 1)):
        while number % wide:
            wide //= 2
    return wide


def _merged(dims: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Dimensions that follow each other in memory count as one."""
    found: list[tuple[int, int]] = []
    for stride, size in sorted(dims):
        if found and found[-1][0] * found[-1][1] == stride:
            found[-1] = (found[-1][0], found[-1][1] * size)
        else:
            found.append((stride, size))
    return found


def _product(dims: Sequence[tuple[int, int]]) -> int:
    result = 1
    for _, size in dims:
        result *= size
    return result
