"""Tensors from ragged documents: what every layout shares.

A layout decides which documents lie in which row; here they are laid down. The conventions of `memcfg.batch.Batch` hold:
positions start anew with each document, the first label of each document is no target, padding lies on the right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memcfg.batch import IGNORE, Batch, Documents
from memcfg.errors import Problem, RunError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg.batch import Layout
    from memcfg.plan import Plan


@dataclass(frozen=True)
class Paper:
    """How wide rows are and what fills them up. `multiple_of` rounds the width up; `max_length` is the longest document
    that may arrive (cutting is done long before, by truncation or packing); both in tokens, None for no limit."""

    pad_id: int
    multiple_of: int | None = None
    max_length: int | None = None

    @classmethod
    def of(cls, plan: Plan, tokenizer: PreTrainedTokenizerBase) -> Paper:
        """What the plan says of widths. A tokenizer without a padding token pads with its end token: no loss, no document
        and no attention ever reads it."""
        ids = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
        pad = next(i for i in ids if isinstance(i, int))
        return cls(pad, plan.get("padding.multiple_of"), plan.get("truncation.max_length"))

    def width(self, needed: int) -> int:
        step = self.multiple_of or 1
        return -(-needed // step) * step


def lay(documents: Documents, rows: list[list[int]], layout: str, paper: Paper) -> Batch:
    """Lay the documents of each row end to end. Raises `RunError` for a document that is empty or too long.

    Positions of padding go on from the last document: it then is no document of its own, and a batch of single documents
    needs no mask at all. They stop at the longest position that a document may have, the last one that a model with
    learned positions is sure to know."""
    _check(documents.lengths(), paper.max_length)
    totals = [sum(len(documents.input_ids[d]) for d in row) for row in rows]
    shape = (len(rows), paper.width(max(totals)))
    ids, labels = torch.full(shape, paper.pad_id), torch.full(shape, IGNORE)
    positions, owners = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
    for row, members in enumerate(rows):
        at = 0
        for d in members:
            end = at + len(documents.input_ids[d])
            ids[row, at:end] = documents.input_ids[d]
            labels[row, at + 1 : end] = documents.labels[d][1:]
            positions[row, at:] = torch.arange(shape[1] - at)
            owners[row, at:end] = d
            at = end
    if paper.max_length is not None:
        positions.clamp_(max=paper.max_length - 1)
    lengths = [len(documents.input_ids[d]) for row in rows for d in row]
    return Batch(ids, labels, positions, owners, layout=layout, lengths=lengths, fields=dict(documents.fields))


def laid(layout: Layout, documents: Documents) -> Batch:
    """The documents as a batch, and those beside them as one of their own."""
    batch = layout(documents)
    if documents.aside is not None:
        batch.aside = layout(documents.aside)
    return batch


def joined(documents: Documents) -> Documents:
    """The same rows, each of them one document: what a layout makes of rows whose documents are to see each other."""
    if all(len(row) == 1 for row in documents.rows):
        return documents
    ids, labels = (
        [torch.cat([field[d] for d in row]) for row in documents.rows]
        for field in (documents.input_ids, documents.labels)
    )
    return Documents(
        ids,
        labels,
        [[row] for row in range(len(ids))],
        {k: [v[r[0]] for r in documents.rows] for k, v in documents.fields.items()},
    )


def _check(lengths: list[int], limit: int | None) -> None:
    if not lengths or min(lengths) == 0:
        raise RunError("a micro-batch holds an empty document, or none")
    if limit is not None and max(lengths) > limit:
        text = f"a document of {max(lengths):,} tokens reached the model, the limit is {limit:,}"
        raise RunError(Problem(text, key="truncation.max_length", fix="cut documents when the data is prepared"))
