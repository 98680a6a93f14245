"""Walks over rows of logits, chunk by chunk: statistics only, or logits turned into gradients where they lie."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from memcfg.batch import TokenLoss
from memcfg_loss.fused import ops
from memcfg_loss.fused.chunks import Chunks, fitting, preferred
from memcfg_loss.fused.products import Gradients, Layer, Needs
from memcfg_loss.transform import HeadTransform


@dataclass(frozen=True)
class Score:
    """What is done to the rows. `fused` is the loss that the one-kernel form knows (`nll`, `dft`); None asks `loss` itself
    for value and derivative of each log-probability. `smoothing` (of labels) and `z_loss` (times the square of the
    log-sum) go with `nll`. `chunk` is the budget in bytes, None for what suits the layer."""

    transform: HeadTransform
    loss: TokenLoss | None = None
    fused: str | None = None
    smoothing: float = 0.0
    z_loss: float = 0.0
    chunk: int | None = None

    @property
    def factors(self) -> tuple[float, float, float]:
        return self.transform.scale, self.transform.softcap or 0.0, self.transform.temperature

    def chunks(self, layer: Layer, rows: int, trained: bool) -> Chunks:
        size = layer.weight.element_size()
        room = preferred(layer.weight, trained) if self.chunk is None else self.chunk
        return fitting(room, rows, layer.weight.shape[0], size)


@dataclass(frozen=True)
class Rows:
    """The N rows to score: `hidden` [M, H] and `low` [M, r] or None, of which `at` [N] are read (None: all, in order);
    `ids` [N] are their targets."""

    hidden: torch.Tensor
    low: torch.Tensor | None
    at: torch.Tensor | None
    ids: torch.Tensor

    def __len__(self) -> int:
        return self.ids.shape[0]

    def of(self, part: slice, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Hidden states and low-rank states of a chunk."""
        low = None if self.low is None else self._take(self.low, part).to(dtype)
        return self._take(self.hidden, part).to(dtype), low

    def _take(self, source: torch.Tensor, part: slice) -> torch.Tensor:
        return source[part] if self.at is None else source.index_select(0, self.at[part])


def statistics(rows: Rows, layer: Layer, score: Score) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability and log-sum of each row, float32 [N] both: one product, no gradient."""
    logp, logsum = torch.empty(2, len(rows), dtype=torch.float32, device=rows.ids.device)
    chunks = score.chunks(layer, len(rows), trained=False)
    buffer = chunks.buffer(len(rows), layer.weight.dtype, rows.ids.device)
    for part in chunks.parts(len(rows)):
        raw = layer.raw_(buffer[: part.stop - part.start], *rows.of(part, layer.weight.dtype))
        ops.row_statistics_(raw, rows.ids[part], logp[part], logsum[part], None, None, *score.factors)
    return logp, logsum


def descend(rows: Rows, layer: Layer, score: Score, needs: Needs) -> tuple[torch.Tensor, Gradients]:
    """The loss of each row, float32 [N], and the gradients of their sum."""
    chunks = score.chunks(layer, len(rows), trained=needs.weight)
    buffer = chunks.buffer(len(rows), layer.weight.dtype, rows.ids.device)
    gradients = Gradients(needs, layer, len(rows))
    value = torch.empty(len(rows), dtype=torch.float32, device=rows.ids.device)
    for part in chunks.parts(len(rows)):
        hidden, low = rows.of(part, layer.weight.dtype)
        raw = layer.raw_(buffer[: part.stop - part.start], hidden, low)
        _turn(raw, rows.ids[part], value[part], score)
        gradients.add(part, raw, hidden, low)
    return value, gradients


def ascend(
    rows: Rows, layer: Layer, score: Score, needs: Needs, logsum: torch.Tensor, coefficient: torch.Tensor
) -> Gradients:
    """The gradients of `sum(coefficient * logp)`; logits are made once more. `logsum` as `statistics` gave it."""
    chunks = score.chunks(layer, len(rows), trained=needs.weight)
    buffer = chunks.buffer(len(rows), layer.weight.dtype, rows.ids.device)
    gradients = Gradients(needs, layer, len(rows))
    for part in chunks.parts(len(rows)):
        hidden, low = rows.of(part, layer.weight.dtype)
        raw = layer.raw_(buffer[: part.stop - part.start], hidden, low)
        ops.logp_to_gradient_(raw, rows.ids[part], logsum[part], coefficient[part], *score.factors)
        gradients.add(part, raw, hidden, low)
    return gradients


def _turn(raw: torch.Tensor, ids: torch.Tensor, value: torch.Tensor, score: Score) -> None:
    """Raw logits into gradients, and each row's loss into `value`."""
    if score.fused is not None:
        dft = score.fused == "dft"
        ops.loss_to_gradient_(raw, ids, value, *score.factors, dft, score.smoothing, score.z_loss)
        return
    assert score.loss is not None
    logsum = torch.empty_like(value)
    ops.row_statistics_(raw, ids, value, logsum, None, None, *score.factors)
    ops.logp_to_gradient_(raw, ids, logsum, score.loss.derivative(value), *score.factors)
    value.copy_(score.loss.value(value))
