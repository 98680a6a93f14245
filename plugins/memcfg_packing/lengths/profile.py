"""What follows from the lengths of documents alone: their distribution, and what each length of a row would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memcfg.histogram import histogram
from memcfg_packing.placement import place

Ints = npt.NDArray[np.int64]

QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)
CUT, LOST = 0.01, 0.05
"""Shares of documents that a recommended length may cut, and of tokens that it may cut off."""
SHORTEST = 128
"""No candidate is shorter, unless all documents are."""


@dataclass(frozen=True)
class Packed:
    """Rows that a strategy makes, and how much of them is filled."""

    rows: int
    fill: float


@dataclass(frozen=True)
class Candidate:
    """One `truncation.max_length`. `truncated`: tokens that cutting to it loses, `cut`: documents that lose any. `padding`:
    share of positions that hold no token in shuffled batches of `batch` rows. `packed`: rows and fill by strategy.
    `memory`: predicted peak in bytes, where it was asked for."""

    length: int
    truncated: int
    truncated_share: float
    cut: int
    cut_share: float
    padding: float
    packed: dict[str, Packed]
    memory: int | None = None


@dataclass(frozen=True)
class Profile:
    """`bins`: `(first length, last length, documents, tokens)` on a scale of ratios. `quantiles`: lengths by share.
    `added`: what template and special tokens add to a document on average; None where rows are token ids already."""

    documents: int
    tokens: int
    mean: float
    quantiles: dict[float, int]
    bins: list[tuple[int, int, int, int]]
    candidates: list[Candidate]
    recommended: int
    reason: str
    batch: int
    added: float | None = None
    bare_quantiles: dict[float, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        data = asdict(self)
        for name in ("quantiles", "bare_quantiles"):
            if data[name] is not None:
                data[name] = {f"{share:g}": length for share, length in data[name].items()}
        return data


def profile(
    lengths: Ints, *, batch: int, chosen: int | None = None, longest: int | None = None, bare: Ints | None = None,
    dressed: Ints | None = None,
) -> Profile:  # fmt: skip
    """The profile of documents of these lengths. `chosen`: a length that the request names, a candidate in any case;
    `longest`: what the model takes."""
    sizes = candidates(lengths, chosen, longest)
    found = [candidate(lengths, size, batch) for size in sizes]
    recommended, reason = recommend(found, longest)
    known = bare is not None and dressed is not None and len(bare) > 0
    return Profile(
        documents=len(lengths), tokens=int(lengths.sum()), mean=float(lengths.mean()), quantiles=quantiles(lengths),
        bins=histogram(lengths), candidates=found, recommended=recommended, reason=reason, batch=batch,
        added=float(dressed.mean() - bare.mean()) if known and dressed is not None and bare is not None else None,
        bare_quantiles=quantiles(bare) if known and bare is not None else None,
    )  # fmt: skip


def quantiles(lengths: Ints) -> dict[float, int]:
    return {q: int(v) for q, v in zip(QUANTILES, np.quantile(lengths, QUANTILES, method="higher"), strict=True)}


def candidates(lengths: Ints, chosen: int | None, longest: int | None) -> list[int]:
    """Powers of two up to the longest document (or what the model takes), and the length that was chosen."""
    end = int(lengths.max())
    size = min(SHORTEST, _power(end))
    sizes = {size}
    while size < end:
        size *= 2
        sizes.add(size)
    if longest is not None:
        sizes = {size for size in sizes if size <= longest} | ({longest} if longest < end else set())
    return sorted(sizes | ({chosen} if chosen is not None else set()) or {end})


def _power(number: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << max(0, number - 1).bit_length()


def candidate(lengths: Ints, size: int, batch: int) -> Candidate:
    """What one length costs."""
    kept = np.minimum(lengths, size)
    total = int(lengths.sum())
    lost, cut = total - int(kept.sum()), int((lengths > size).sum())
    packed = {}
    for strategy in ("bfd", "bfd_split"):
        counts = place(lengths, size, strategy).counts
        held = total if strategy == "bfd_split" else total - lost
        packed[strategy] = Packed(len(counts), held / (len(counts) * size) if len(counts) else 0.0)
    return Candidate(size, lost, lost / total, cut, cut / len(lengths), padding(kept, batch), packed)


def padding(lengths: Ints, batch: int) -> float:
    """Share of positions without a token in shuffled batches of `batch` documents, each padded to its longest."""
    order = np.random.default_rng(0).permutation(lengths)
    longest = np.maximum.reduceat(order, np.arange(0, len(order), batch))
    counts = np.diff([*range(0, len(order), batch), len(order)])
    return float(1 - order.sum() / (longest * counts).sum())


def recommend(found: Sequence[Candidate], longest: int | None) -> tuple[int, str]:
    """The shortest candidate that cuts off little, and why it is that one."""
    able = [c for c in found if longest is None or c.length <= longest] or list(found[:1])
    best = next((c for c in able if c.cut_share <= CUT and c.truncated_share <= LOST), None)
    if best is None:
        best = able[-1]
        return best.length, (
            f"the model takes no more tokens, though {best.cut_share:.1%} of the documents are longer; "
            "`packing=bfd_split` keeps what is cut off, in pieces"
        )
    shorter = [c for c in able if c.length < best.length]
    before = f"; {shorter[-1].length:,} would cut {_loss(shorter[-1])}" if shorter else ""
    return best.length, ("it cuts nothing" if not best.cut else f"it cuts {_loss(best)}") + before


def _loss(found: Candidate) -> str:
    return f"{found.cut_share:.2%} of the documents and {found.truncated_share:.1%} of the tokens"
