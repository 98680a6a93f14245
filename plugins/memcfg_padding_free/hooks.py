"""Implementations of the padding-free plugin's hooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memcfg import hookimpl
from memcfg.batch import Batch, Documents, Layout
from memcfg.engine.evidence import Effective
from memcfg.engine.layout import Paper, lay

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg import Plan


@dataclass(frozen=True)
class RowsLayout:
    """Rows [B, L] of whole documents. Packed rows stay as packing made them; single documents are laid into as few rows
    as first-fit decreasing finds, none wider than the longest document."""

    paper: Paper

    def __call__(self, documents: Documents) -> Batch:
        packed = any(len(row) > 1 for row in documents.rows)
        rows = documents.rows if packed else first_fit(documents.lengths())
        return lay(documents, rows, "rows", self.paper)


@dataclass(frozen=True)
class FlatLayout:
    """One row [1, T] of all documents, in the order of the data. Cumulative lengths follow from `Batch.lengths`."""

    paper: Paper

    def __call__(self, documents: Documents) -> Batch:
        return lay(documents, [[d for row in documents.rows for d in row]], "flat", self.paper)


def first_fit(lengths: list[int]) -> list[list[int]]:
    """Bins of indices, each bin no longer than the longest length: the longest first, each into the first bin with room.
    Equal lengths keep their order, so the same documents always lie the same way."""
    capacity = max(lengths, default=0)
    bins: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fits = next((b for b, free in enumerate(room) if free >= lengths[index]), None)
        if fits is None:
            fits = len(bins)
            bins.append([])
            room.append(capacity)
        bins[fits].append(index)
        room[fits] -= lengths[index]
    return bins


LAYOUTS: dict[str, type[RowsLayout] | type[FlatLayout]] = {"rows": RowsLayout, "flat": FlatLayout}


@hookimpl
def memcfg_layout(plan: Plan, tokenizer: PreTrainedTokenizerBase) -> Layout:
    return LAYOUTS[plan["batch.layout"]](Paper.of(plan, tokenizer))


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """Padding-free is in force where positions start anew at each document of the first step."""
    if run.first:
        apart = all(starts(batch) == len(batch.lengths) for batch in run.first)
        documents, rows = sum(len(b.lengths) for b in run.first), sum(len(b.input_ids) for b in run.first)
        evidence = f"{documents} documents in {rows} rows of the first step, positions restart at each"
        found.append(Effective("padding_free.enabled", apart, evidence if apart else f"{evidence}: not so"))
    return found


def starts(batch: Batch) -> int:
    """How many tokens have position 0 and belong to a document."""
    return int(((batch.position_ids == 0) & (batch.document_ids >= 0)).sum())
