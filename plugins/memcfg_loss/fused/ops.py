"""The Triton kernels as torch custom operators, with fake implementations: storage-less tensors take the same path.

All of them work on rows of raw logits [N, V] (any float type, unit stride along V) and write float32 values [N]."""

from __future__ import annotations

from typing import Any

import torch
import triton

from memcfg_loss.fused import kernel as kernels

LOG2E = 1.4426950408889634
ALIGN = 16
"""Elements: rows that begin at multiples of it are moved in vectors of 16 bytes."""
WARPS = 32
LANES = 32 * WARPS * 2
BLOCK = 4096


def padded(columns: int) -> int:
    """Columns of a row with its padding."""
    return -(-columns // ALIGN) * ALIGN


def _room(raw: torch.Tensor) -> int:
    """Columns that the kernels may touch: with the padding, if the rows have any."""
    return min(padded(raw.shape[1]), raw.stride(0))


def _lanes(columns: int) -> dict[str, Any]:
    lanes = min(LANES, max(4, triton.next_power_of_2(triton.cdiv(columns, kernels.ELEMENTS))))
    return {"LANES": lanes, "ELEMENTS": kernels.ELEMENTS, "num_warps": min(WARPS, max(1, lanes // 64))}


def _factors(scale: float, softcap: float, temperature: float) -> dict[str, Any]:
    """`pre`, `post` and CAP of the kernels; a soft cap of 0 is none."""
    if softcap:
        return {"pre": 2 * LOG2E * scale / softcap, "post": softcap * LOG2E / temperature, "CAP": True}
    return {"pre": scale * LOG2E / temperature, "post": 1.0, "CAP": False}


@torch.library.custom_op("memcfg::loss_to_gradient_", mutates_args=("raw", "loss"))
def loss_to_gradient_(
    raw: torch.Tensor, targets: torch.Tensor, loss: torch.Tensor, scale: float, softcap: float, temperature: float,
    dft: bool, smoothing: float, z_loss: float,
) -> None:  # fmt: skip
    """Write each row's loss to `loss` [N] and turn `raw` into the gradient of the sum of losses over raw logits."""
    rows, columns = raw.shape
    kernels.loss_kernel[(rows,)](
        raw, raw.stride(0), targets, loss, columns, _room(raw), scale / temperature, smoothing=smoothing, z_loss=z_loss,
        DFT=dft, SMOOTH=smoothing != 0, Z=z_loss != 0, **_factors(scale, softcap, temperature), **_lanes(columns),
    )  # fmt: skip


@torch.library.custom_op("memcfg::logp_to_gradient_", mutates_args=("raw",))
def logp_to_gradient_(
    raw: torch.Tensor, targets: torch.Tensor, logsum: torch.Tensor, coefficient: torch.Tensor,
    entropy: torch.Tensor | None, pull: torch.Tensor | None, scale: float, softcap: float, temperature: float,
) -> None:  # fmt: skip
    """Turn `raw` into the gradient of `sum(coefficient * logp + pull * entropy)` over raw logits; `logsum` and `entropy` as
    `row_statistics_` gave them, the latter and `pull` None where only log-probabilities are asked for."""
    room = _room(raw)
    kernels.gradient_kernel[(raw.shape[0], triton.cdiv(room, BLOCK))](
        raw, raw.stride(0), targets, logsum, coefficient, logsum if entropy is None else entropy,
        coefficient if pull is None else pull, room, scale / temperature,
        ENTROPY=entropy is not None, BLOCK=BLOCK, num_warps=8,
        **_factors(scale, softcap, temperature),
    )  # fmt: skip


@torch.library.custom_op("memcfg::row_statistics_", mutates_args=("logp", "logsum", "entropy", "hit"))
def row_statistics_(
    raw: torch.Tensor, targets: torch.Tensor, logp: torch.Tensor, logsum: torch.Tensor, entropy: torch.Tensor | None,
    hit: torch.Tensor | None, scale: float, softcap: float, temperature: float,
) -> None:  # fmt: skip
    """Write each row's target log-probability and log-sum; its entropy in nats and whether the target is the first of
    the largest logits (1.0 or 0.0) where a tensor is given."""
    rows, columns = raw.shape
    kernels.statistics_kernel[(rows,)](
        raw, raw.stride(0), targets, logp, logsum, logp if entropy is None else entropy, logp if hit is None else hit,
        columns, _room(raw), ENTROPY=entropy is not None, HIT=hit is not None, **_factors(scale, softcap, temperature),
        **_lanes(columns),
    )  # fmt: skip


@torch.library.custom_op("memcfg::scaled_to", mutates_args=())
def scaled_to(source: torch.Tensor, factor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`source * factor` (a scalar tensor) in another type: one reading, one writing, one rounding."""
    result = torch.empty_like(source, dtype=dtype)
    size = source.numel()
    if size:
        kernels.scale_kernel[(triton.cdiv(size, BLOCK),)](source, factor, result, size, BLOCK=BLOCK, num_warps=8)
    return result


@scaled_to.register_fake
def _(source: torch.Tensor, factor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_like(source, dtype=dtype)


for _writes_only in (loss_to_gradient_, logp_to_gradient_, row_statistics_):
    _writes_only.register_fake(lambda *arguments, **keywords: None)
