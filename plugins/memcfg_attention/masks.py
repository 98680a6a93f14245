"""Block-diagonal causal masks: a position sees itself and what precedes it in its own document, as far as its layer looks."""

from __future__ import annotations

from typing import Any

import torch

from memcfg.batch import Batch

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def masks(batch: Batch, config: Any, *, dtype: torch.dtype | None) -> torch.Tensor | dict[str, torch.Tensor]:
    """The mask [B, 1, L, L] that the model described by `config` needs, or one for each of its kinds of layers.

    Boolean (true: may look) where `dtype` is None, as `sdpa` wants it; otherwise additive in `dtype`, as
    `eager` and FlexAttention do."""
    kinds = sorted(set(getattr(config, "layer_types", None) or ()))
    if len(kinds) > 1:
        return {kind: _finished(visible(batch, **_reach(config, kind)), dtype) for kind in kinds}
    kind = kinds[0] if kinds else (SLIDING if getattr(config, "sliding_window", None) else FULL)
    return _finished(visible(batch, **_reach(config, kind)), dtype)


def visible(batch: Batch, window: int | None = None, chunk: int | None = None) -> torch.Tensor:
    """Which position [.., i, :] sees which [.., :, j]: bool [B, L, L]. Padding sees padding, so that no row is empty."""
    owner, place = batch.document_ids, torch.arange(batch.document_ids.shape[1], device=batch.document_ids.device)
    distance = place[:, None] - place[None, :]
    seen = (owner[:, :, None] == owner[:, None, :]) & (distance >= 0)
    if window is not None:
        seen &= distance < window
    if chunk is not None:
        block = batch.position_ids // chunk
        seen &= block[:, :, None] == block[:, None, :]
    return seen


def _reach(config: Any, kind: str) -> dict[str, int | None]:
    if kind == SLIDING:
        return {"window": config.sliding_window}
    if kind == CHUNKED:
        return {"chunk": config.attention_chunk_size}
    return {}


def _finished(seen: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    seen = seen[:, None]
    if dtype is None:
        return seen
    return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
