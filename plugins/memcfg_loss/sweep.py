"""One pass over the targets, a chunk of logits at a time.

Shapes: N targets, H hidden, V vocabulary, C rows of a chunk. There is one buffer of logits, [C, V], in float32 (float64
for a float64 model). The gradient over the logits of a chunk is made in that same buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from memcfg_loss.transform import HeadTransform

Tensor = torch.Tensor
Score = Callable[[slice, Tensor], Tensor | None]
"""Given a span of targets and their log-probabilities [C], returns the derivative of the loss with respect to them."""


@dataclass
class Gradients:
    """What a sweep adds up: gradients of the hidden states [N, H], of the weight [V, H] and of the bias [V]. None where
    nobody asks. The last two are in the precision of the logits: rounding them after every chunk would bias training."""

    hidden: Tensor | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None
    dtype: torch.dtype | None = None
    """The dtype that the weight and bias gradients have in the end."""

    @classmethod
    def like(
        cls, hidden: Tensor, weight: Tensor, bias: Tensor | None, needed: Sequence[bool], sweep: Sweep
    ) -> Gradients:
        return cls(
            torch.empty_like(hidden) if needed[0] else None,
            torch.zeros_like(weight, dtype=sweep.precision) if needed[1] else None,
            torch.zeros_like(bias, dtype=sweep.precision) if bias is not None and needed[2] else None,
            weight.dtype,
        )

    @property
    def wanted(self) -> bool:
        return any(g is not None for g in (self.hidden, self.weight, self.bias))

    def scaled_(self, factor: Tensor) -> tuple[Tensor | None, ...]:
        """All of them times a scalar, in place, in the dtype of what they belong to."""
        for gradient in (self.hidden, self.weight, self.bias):
            if gradient is not None:
                gradient.mul_(factor)
        return self.cast()

    def cast(self) -> tuple[Tensor | None, ...]:
        cast = (None if g is None else g.to(self.dtype) for g in (self.weight, self.bias))
        return (self.hidden, *cast)


@dataclass(frozen=True)
class Sweep:
    """`targets` int64 [N]; at most `rows` of them in a chunk; products run in `dtype`; `device` is the plan's."""

    targets: Tensor
    rows: int
    transform: HeadTransform
    dtype: torch.dtype
    device: str = "cpu"

    @property
    def precision(self) -> torch.dtype:
        """The dtype of logits and of everything that adds up."""
        return torch.promote_types(torch.float32, self.dtype)

    def run(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, score: Score, gradients: Gradients) -> None:
        """Hand every chunk's log-probabilities to `score`, and add what it answers to `gradients`."""
        with torch.autocast(hidden.device.type, enabled=False):
            weight = weight.to(self.dtype)
            buffer: Tensor | None = None
            for span in self._spans():
                rows = hidden[span].to(self.dtype)
                buffer = self._logits(rows, weight, bias, buffer)
                slope = self.transform.slope(buffer) if gradients.wanted else None
                logp, total = exponentiate_(buffer, self.targets[span])
                derivative = score(span, logp)
                if derivative is not None:
                    to_gradient_(buffer, self.targets[span], derivative, total)
                    self.transform.chain_(buffer, slope)
                    self._add(gradients, span, buffer, rows, weight)

    def _spans(self) -> Iterator[slice]:
        """Chunks of equal size, as few as the limit allows."""
        count = -(-len(self.targets) // self.rows)
        size = -(-len(self.targets) // count)
        return (slice(start, min(start + size, len(self.targets))) for start in range(0, len(self.targets), size))

    def _logits(self, rows: Tensor, weight: Tensor, bias: Tensor | None, buffer: Tensor | None) -> Tensor:
        shape = (len(rows), len(weight))
        raw = torch.empty(shape, dtype=self.precision, device=rows.device) if buffer is None else buffer[: shape[0]]
        if self.dtype == self.precision:
            torch.mm(rows, weight.T, out=raw)
        else:
            raw.copy_(torch.mm(rows, weight.T))
        if bias is not None:
            raw.add_(bias)
        return self.transform.apply_(raw)

    def _add(self, gradients: Gradients, span: slice, over_logits: Tensor, rows: Tensor, weight: Tensor) -> None:
        narrow = over_logits.to(self.dtype)
        if gradients.hidden is not None:
            gradients.hidden[span] = torch.mm(narrow, weight)
        if gradients.bias is not None:
            gradients.bias.add_(over_logits.sum(0))
        if gradients.weight is not None:
            self._add_weight(gradients.weight, over_logits, narrow, rows)

    def _add_weight(self, total: Tensor, over_logits: Tensor, narrow: Tensor, rows: Tensor) -> None:
        if self.device == "cuda" and self.dtype != self.precision:
            torch.addmm(total, narrow.T, rows, out_dtype=self.precision, out=total)
        else:
            total.addmm_(over_logits.T, rows.to(self.precision))


def exponentiate_(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Turn logits [C, V] into exp(logits - their maximum) in place. Returns the log-probabilities of `targets` [C] and
    the sum of each row [C], by which the row would have to be divided to be probabilities."""
    top = logits.amax(1, keepdim=True)
    chosen = logits.gather(1, targets[:, None]) - top
    total = logits.sub_(top).exp_().sum(1)
    return chosen.squeeze(1) - total.log(), total


def to_gradient_(exponents: Tensor, targets: Tensor, derivative: Tensor, total: Tensor) -> Tensor:
    """Turn what `exponentiate_` left into the gradient over logits in place: derivative * (one at the target - p)."""
    exponents.mul_(-(derivative / total)[:, None])
    return exponents.scatter_add_(1, targets[:, None], derivative[:, None])


def compute_dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """The dtype in which the model itself would multiply: autocast's where it is on, the weight's otherwise."""
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
