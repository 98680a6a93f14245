"""Attention over cumulative lengths: all documents in one row, each attending within its own, no mask anywhere.

`varlen` is torch's own `torch.nn.attention.varlen.varlen_attn`, registered with Transformers; `flash2`, `flash3` and kernels
of the hub go through Transformers' own function, which takes the same arguments. Rows of one document each (the padded layout) are cumulative lengths
too: what is padded lies to the right, where a causal document does not look.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from memcfg import Problem, RunError
from memcfg.batch import Batch

NAMES = {"varlen": "memcfg_varlen", "flash2": "flash_attention_2", "flash3": "flash_attention_3"}
"""What Transformers calls them."""


@dataclass(frozen=True)
class LengthsAttention:
    """`name` is Transformers' name of the kernel."""

    name: str

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """Cumulative lengths as int32 [documents + 1] on the batch's device, and the longest length as a number."""
        edges = cumulative(batch)
        longest = max(end - start for start, end in pairwise(edges))
        device = batch.input_ids.device
        lengths = torch.tensor(edges, dtype=torch.int32)
        if device.type == "cuda":
            lengths = lengths.pin_memory()
        lengths = lengths.to(device, non_blocking=True)
        return {
            "cu_seq_lens_q": lengths, "cu_seq_lens_k": lengths, "max_length_q": longest, "max_length_k": longest,
        }  # fmt: skip


def cumulative(batch: Batch) -> list[int]:
    """Where documents begin and end in the batch laid out as one row. Padding at the end is a document of its own."""
    rows, width = batch.input_ids.shape
    if len(batch.lengths) == rows:
        return list(range(0, rows * width + 1, width))
    if rows > 1:
        raise ValueError("documents that share rows must lie in one row for attention over lengths")
    edges = [0]
    for length in batch.lengths:
        edges.append(edges[-1] + length)
    return edges if edges[-1] == width else [*edges, width]


@cache
def _offers() -> frozenset[str]:
    """Keyword arguments of this torch's `varlen_attn`: newer ones ask to be told of grouped heads."""
    return frozenset(inspect.signature(varlen_attn).parameters)


def varlen(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """`varlen_attn` in the form that Transformers calls attention: query [B, heads, L, D], key and value [B, kv, L, D].

    Without lengths (a plain forward, generation) it is causal `sdpa`."""
    if cu_seq_lens_q is None or max_length_q is None:
        return _plain(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **others)
    if dropout:
        raise _no_dropout(dropout)
    batch, heads, length, dim = query.shape
    flat = [t.transpose(1, 2).reshape(batch * length, -1, dim) for t in (query, key, value)]
    back = -1 if sliding_window is None else sliding_window - 1
    options: dict[str, Any] = {"scale": scaling, "window_size": (back, 0)}
    if "enable_gqa" in _offers() and heads != key.shape[1]:
        options["enable_gqa"] = True
    edges, longest = cu_seq_lens_q, max_length_q
    out = varlen_attn(*flat, edges, edges, longest, longest, **options)
    assert isinstance(out, torch.Tensor)
    return out.view(batch, length, heads, dim), None


def _plain(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **options: Any
) -> tuple[torch.Tensor, None]:
    """Causal `sdpa`; a 2-D mask [B, positions] of what is no padding becomes [B, 1, queries, positions]."""
    if mask is not None and mask.dim() == 2:
        length, seen = query.shape[2], key.shape[2]
        causal = torch.ones(length, seen, dtype=torch.bool, device=query.device).tril(seen - length)
        mask = causal & mask[:, None, None, :seen].bool()
    return sdpa_attention_forward(module, query, key, value, mask, **options)


def _no_mask(*_: Any, attention_mask: torch.Tensor | None = None, **__: Any) -> torch.Tensor | None:
    return attention_mask


def register() -> None:
    """Make `varlen` known to Transformers. Doing it twice changes nothing."""
    AttentionInterface.register(NAMES["varlen"], varlen)
    AttentionMaskInterface.register(NAMES["varlen"], _no_mask)


def _no_dropout(dropout: float) -> RunError:
    text = f"the model's attention has a dropout of {dropout:g}, and attention over lengths has none"
    fix = "attention.implementation=sdpa, or set its dropout to 0 in the model's `config.json`"
    return RunError(Problem(text, key="attention.implementation", fix=fix))
