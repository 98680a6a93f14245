"""Walks over rows of logits, chunk by chunk: statistics only, or logits turned into gradients where they lie."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch

from memcfg.batch import TokenLoss
from memcfg.head.transform import HeadTransform
from memcfg_loss.fused.chunks import Chunks, evened, fitting, preferred
from memcfg_loss.fused.products import Gradients, Layer, Needs
from memcfg_loss.tokens import DFT, NLL

ROWS = {"torch": "memcfg_loss.fused.plain", "triton": "memcfg_loss.fused.ops"}
"""Kernel -> the module that works on rows of logits."""
FUSED = (NLL, DFT)
"""Losses whose derivative the kernels know themselves; any other is asked for it, between two kernels."""


@dataclass(frozen=True)
class Score:
    """What is done to the rows: by which kernel, on which device type, for which loss (None: log-probabilities), with how
    many bytes of logits at once (None: what suits the layer), and whether in float32 whatever the layer's type."""

    transform: HeadTransform
    kernel: str = "torch"
    device: str = "cpu"
    loss: TokenLoss | None = None
    budget: int | None = None
    float32: bool = False

    @property
    def rows(self) -> Any:
        return importlib.import_module(ROWS[self.kernel])

    @property
    def factors(self) -> tuple[float, float, float]:
        return self.transform.scale, self.transform.softcap or 0.0, self.transform.temperature

    def limit(self, vocabulary: int, itemsize: int, trained: bool, width: int) -> int:
        """How many rows of logits over a layer [vocabulary, width] fit. Raises `RunError` where not even one does."""
        # The torch kernel works in float32 whatever the products' type.
        itemsize = max(4, itemsize) if self.kernel == "torch" else itemsize
        row = self.rows.padded(vocabulary) * itemsize
        room = preferred(vocabulary * width * itemsize, trained) if self.budget is None else self.budget
        return fitting(room, row, vocabulary)

    def chunks(self, layer: Layer, rows: int, trained: bool) -> Chunks:
        vocabulary, width = layer.weight.shape
        limit = self.limit(vocabulary, layer.weight.element_size(), trained, width)
        return Chunks(evened(limit, rows), vocabulary, self.rows.padded(vocabulary))


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

    def values(self, layer: Layer) -> torch.Tensor:
        """Room for one number a row."""
        return torch.empty(len(self), dtype=layer.precision, device=self.ids.device)

    def _take(self, source: torch.Tensor, part: slice) -> torch.Tensor:
        return source[part] if self.at is None else source.index_select(0, self.at[part])


def statistics(
    rows: Rows, layer: Layer, score: Score, entropy: torch.Tensor | None = None, hit: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability and log-sum of each row, [N] both: one product, no gradient. To `entropy` and `hit` [N], where given,
    each row's entropy (nats) and whether its target is the likeliest token (1.0 or 0.0) are written."""
    logp, logsum = rows.values(layer), rows.values(layer)
    chunks = score.chunks(layer, len(rows), trained=False)
    buffer = chunks.buffer(layer.weight)
    for part in chunks.parts(len(rows)):
        raw = layer.raw_(buffer[: part.stop - part.start], *rows.of(part, layer.weight.dtype))
        more = [None if wanted is None else wanted[part] for wanted in (entropy, hit)]
        score.rows.row_statistics_(raw, rows.ids[part], logp[part], logsum[part], *more, *score.factors)
    return logp, logsum


def descend(rows: Rows, layer: Layer, score: Score, needs: Needs) -> tuple[torch.Tensor, Gradients]:
    """The loss of each row, [N], and the gradients of their sum. Without a loss, that of the log-probabilities."""
    chunks = score.chunks(layer, len(rows), trained=needs.weight)
    buffer = chunks.buffer(layer.weight)
    gradients = Gradients(needs, layer, len(rows), score.device)
    value = rows.values(layer)
    for part in chunks.parts(len(rows)):
        hidden, low = rows.of(part, layer.weight.dtype)
        raw = layer.raw_(buffer[: part.stop - part.start], hidden, low)
        _turn(raw, rows.ids[part], value[part], score)
        gradients.add(part, raw, hidden, low)
    return value, gradients


def ascend(
    rows: Rows, layer: Layer, score: Score, needs: Needs, logsum: torch.Tensor, coefficient: torch.Tensor,
    entropy: torch.Tensor | None = None, pull: torch.Tensor | None = None,
) -> Gradients:  # fmt: skip
    """The gradients of `sum(coefficient * logp + pull * entropy)`; logits are made once more. `logsum` and `entropy` as
    `statistics` gave them."""
    chunks = score.chunks(layer, len(rows), trained=needs.weight)
    buffer = chunks.buffer(layer.weight)
    gradients = Gradients(needs, layer, len(rows), score.device)
    for part in chunks.parts(len(rows)):
        hidden, low = rows.of(part, layer.weight.dtype)
        raw = layer.raw_(buffer[: part.stop - part.start], hidden, low)
        more = [None if given is None else given[part] for given in (entropy, pull)]
        score.rows.logp_to_gradient_(raw, rows.ids[part], logsum[part], coefficient[part], *more, *score.factors)
        gradients.add(part, raw, hidden, low)
    return gradients


def _turn(raw: torch.Tensor, ids: torch.Tensor, value: torch.Tensor, score: Score) -> None:
    """Raw logits into gradients, and each row's loss into `value`."""
    loss = score.loss if score.loss is not None else NLL()
    if type(loss) in FUSED:
        smoothing, z_loss = (loss.smoothing, loss.z_loss) if isinstance(loss, NLL) else (0.0, 0.0)
        score.rows.loss_to_gradient_(raw, ids, value, *score.factors, type(loss) is DFT, smoothing, z_loss)
        return
    logsum, copy = torch.empty_like(value), raw if score.kernel == "triton" else raw.clone()
    score.rows.row_statistics_(copy, ids, value, logsum, None, None, *score.factors)
    score.rows.logp_to_gradient_(raw, ids, logsum, loss.derivative(value), None, None, *score.factors)
    value.copy_(loss.value(value))
