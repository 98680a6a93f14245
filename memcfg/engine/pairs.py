"""Prepared rows of several completions as documents: one document to each completion, in the order of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from memcfg.batch import Documents

SCORES = "reference_scores"
"""Column of prepared rows, and field of a batch: what the reference gives each document, where that is known beforehand."""


def collate(batch: Sequence[dict[str, Any]]) -> Documents:
    """The documents of some rows. A row of K completions becomes K documents, which lie apart: in a padded layout each
    has a row of its own."""
    documents = Documents([], [], [])
    for row in batch:
        ids = torch.as_tensor(row["input_ids"], dtype=torch.int64)
        labels = torch.as_tensor(row["labels"], dtype=torch.int64)
        sizes = [int(n) for n in row["seq_lengths"]]
        documents.input_ids += ids.split(sizes)
        documents.labels += labels.split(sizes)
    documents.rows = [[index] for index in range(len(documents.input_ids))]
    if all(row.get(SCORES) is not None for row in batch):
        documents.fields[SCORES] = torch.cat([torch.as_tensor(row[SCORES], dtype=torch.float64) for row in batch])
    return documents


def stand_in(lengths: Sequence[Sequence[int]], completions: int) -> list[dict[str, Any]]:
    """Rows of one token id for planning, of so many completions each; half of every document is a prompt. `lengths`: the
    documents of a micro-batch, as they lie in it."""
    sizes = [size for documents in lengths for size in documents]
    return [_row(sizes[i : i + completions]) for i in range(0, len(sizes), completions)]


def _row(sizes: list[int]) -> dict[str, Any]:
    labels = torch.ones(sum(sizes), dtype=torch.long)
    for part in labels.split(sizes):
        part[: len(part) // 2] = -100
    return {"input_ids": torch.ones_like(labels), "labels": labels, "seq_lengths": sizes}
