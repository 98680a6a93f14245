"""Bytes that CUDA kernels use below torch's dispatcher, where no mode sees them: from the kernels' host code, and held against
the allocator's history on one H200 (torch 2.11). They are born after a kernel's results, in this order, and die with its end,
the last one first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from memcfg.planner import reductions
from memcfg.planner.machine import Machine

MATMULS: Final = frozenset(
    f"aten::{name}"
    for name in (
        "mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "_scaled_mm", "_grouped_mm", "linear", "matmul", "addbmm", "mv",
    )
)  # fmt: skip

SORTED_FROM: Final = 3072
"""Indices from which the embedding's backward sorts them instead of adding row by row."""


ROWS_AT_ONCE: Final = 10
CHUNK: Final = 1 << 16
"""Elements that an operation on lists of tensors gives to one block."""

SUMS: Final = ("aten::sum", "aten::mean", "aten::linalg_vector_norm", "aten::amax")
WIDEST_PLAIN: Final = 128
"""Width of a head up to which the memory-efficient kernel sums in the place of its result."""


def temporaries(func: Any, args: Sequence[Any], out: Any, machine: Machine) -> list[int]:
    """Sizes of what the operator allocates beyond its results."""
    name = func._schema.name
    if machine.kind != "cuda":
        return []
    if name in SUMS:
        return _sum(name, args, out, machine)
    if name == "aten::cumsum":
        return _cast(args[0], out)
    if name == "aten::_softmax_backward_data":
        return [out.numel() * out.element_size()]  # the gradient times the probabilities
    if name == "aten::_safe_softmax":
        return [out.numel() * out.element_size(), out.numel()]  # before rows without any position are emptied
    if "attention" in name or name.startswith("torch_attn::"):
        return _attention(name, args, machine) if "backward" in name else _attention_forward(name, args)
    if name == "aten::embedding_dense_backward":
        return _embedding(args)
    if name == "aten::_foreach_norm":
        return _norms(args[0])
    return []


def _sum(name: str, args: Sequence[Any], out: Any, machine: Machine) -> list[int]:
    """Numbers that are no floats are turned into the result's type first; many rows are summed by several blocks."""
    tensor = args[0]
    given = args[(2 if name == "aten::linalg_vector_norm" else 1) :][:1]
    dims = given[0] if given and isinstance(given[0], (list, tuple)) and given[0] else range(tensor.dim())
    cast = [] if tensor.dtype.is_floating_point else _cast(tensor, out)
    over = [dim % max(1, tensor.dim()) for dim in dims]
    return cast + reductions.buffers(tensor, over, machine.processors, machine.threads)


def _cast(tensor: Any, out: Any) -> list[int]:
    """The input in the result's type."""
    return [tensor.numel() * out.element_size()] if out.dtype != tensor.dtype else []


def _attention_forward(name: str, args: Sequence[Any]) -> list[int]:
    """The memory-efficient kernel sums wide heads in float32 beside its result."""
    query = args[0]
    return [4 * query.numel()] if "efficient" in name and query.shape[-1] > WIDEST_PLAIN else []


def _attention(name: str, args: Sequence[Any], machine: Machine) -> list[int]:
    query, key = args[1], args[2]
    kernel = next((k for k in ("flash", "cudnn", "efficient", "varlen") if k in name), None)
    if kernel is None:
        return []
    if kernel == "varlen":
        return _varlen(query, key, args[6])
    if kernel == "flash":
        return _flash(query, key)
    if kernel == "efficient":
        return _efficient(query, key)
    measured = machine.attention_bytes.get(kernel)
    if measured is not None:
        return [int(measured * query.numel())]
    return [4 * query.numel() + 8 * (query.numel() // query.shape[-1])]


def _flash(query: Any, key: Any) -> list[int]:
    """One float a row, a float32 accumulator of the query's gradient, and under grouped heads whole key and value ones."""
    batch, heads, rows, width = query.shape
    rows_up = _up(rows, 128)
    found = [4 * batch * heads * rows_up, 4 * batch * heads * rows_up * _up(width, 32)]
    if key.shape[1] != heads:
        found += [query.element_size() * batch * heads * key.shape[2] * width] * 2
    return found


def _efficient(query: Any, key: Any) -> list[int]:
    """The query's gradient in float32, with a lock for each block of its rows; wide heads also keep parts of the key's and
    the value's, as many as 200 blocks allow."""
    batch, heads, rows, width = query.shape
    wide = width > WIDEST_PLAIN
    block = 64 if wide else 128
    size = 0 if query.element_size() == 4 else 4 * _up(rows, block) * _up(width, 64)
    size += 0 if query.element_size() == 4 else 16 * -(-rows // block) * -(-width // 128)
    if wide:
        size += 2 * 4 * block * _up(width, 64) * max(1, min(-(-key.shape[2] // block), 200 // (batch * heads)))
    return [batch * heads * size]


def _varlen(query: Any, key: Any, cumulative: Any) -> list[int]:
    tokens, heads, width = query.shape
    rows = tokens + 128 * (cumulative.shape[0] - 1)
    found = [4 * heads * rows, 4 * rows * heads * _up(width, 32)]
    if key.shape[1] != heads:
        found += [query.element_size() * key.shape[0] * heads * width] * 2
    return found


def _embedding(args: Sequence[Any]) -> list[int]:
    """Sorted indices, and sums of `ROWS_AT_ONCE` rows of equal index each before those of a row are summed."""
    indices, width = args[1].numel(), args[0].shape[-1]
    if indices <= SORTED_FROM:
        return []
    partial = indices // ROWS_AT_ONCE + min(indices, args[2])
    return [8 * indices] * 3 + [8 * partial, 4 * partial * width]


def _norms(tensors: Sequence[Any]) -> list[int]:
    """The norms of all tensors' chunks, as many for each as the largest has."""
    return [4 * len(tensors) * max(-(-t.numel() // CHUNK) for t in tensors)] if tensors else []


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
