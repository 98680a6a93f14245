"""Bytes that CUDA kernels use below torch's dispatcher, where no mode sees them: from the kernels' host code, and measured
on one H200 (torch 2.11). They are born after a kernel's results and die with its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from memcfg.planner.machine import Machine

MATMULS: Final = frozenset(
    f"aten::{name}"
    for name in (
        "mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "_scaled_mm", "_grouped_mm", "linear", "matmul", "addbmm", "mv",
    )
)  # fmt: skip

SORTED_FROM: Final = 3072
"""Indices from which the embedding's backward sorts them instead of adding row by row."""


def temporaries(func: Any, args: Sequence[Any], machine: Machine) -> list[int]:
    """Sizes of what the operator allocates beyond its results."""
    name = func._schema.name
    if machine.kind != "cuda" or "backward" not in name:
        return []
    if "attention" in name or name.startswith("torch_attn::"):
        return _attention(name, args, machine)
    if name == "aten::embedding_dense_backward":
        return _embedding(args)
    return []


def _attention(name: str, args: Sequence[Any], machine: Machine) -> list[int]:
    query, key = args[1], args[2]
    kernel = next((k for k in ("flash", "cudnn", "efficient", "varlen") if k in name), None)
    if kernel is None:
        return []
    measured = machine.attention_bytes.get(kernel)
    if measured is not None:
        return [int(measured * query.numel())]
    if kernel == "varlen":
        return _varlen(query, key, args[6])
    if kernel == "flash":
        return _flash(query, key)
    log_sums = 8 * (query.numel() // query.shape[-1])
    return [4 * query.numel() + (log_sums if kernel == "cudnn" else 0)]


def _flash(query: Any, key: Any) -> list[int]:
    """A float32 accumulator of the query's gradient, one float a row, and under grouped heads whole key and value ones."""
    batch, heads, rows, width = query.shape
    rows_up = _up(rows, 128)
    found = [4 * batch * heads * rows_up * _up(width, 32), 4 * batch * heads * rows_up]
    if key.shape[1] != heads:
        found += [query.element_size() * batch * heads * key.shape[2] * width] * 2
    return found


def _varlen(query: Any, key: Any, cumulative: Any) -> list[int]:
    tokens, heads, width = query.shape
    rows = tokens + 128 * (cumulative.shape[0] - 1)
    found = [4 * rows * heads * _up(width, 32), 4 * heads * rows]
    if key.shape[1] != heads:
        found += [query.element_size() * key.shape[0] * heads * width] * 2
    return found


def _embedding(args: Sequence[Any]) -> list[int]:
    indices, width = args[1].numel(), args[0].shape[-1]
    return [] if indices <= SORTED_FROM else [8 * indices] * 4 + [4 * indices * width]


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
