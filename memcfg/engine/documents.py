"""Values of a batch by document, whatever the layout: sums over a document's positions, and where its targets lie.

A batch of D documents says at each position whose it is (`document_ids`, -1 at padding), so a document's values are found
the same way in padded rows, in shared rows and in one flat row. All results are in the order of `Documents`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from memcfg.batch import IGNORE

if TYPE_CHECKING:
    from memcfg.batch import Batch


def owners(batch: Batch) -> torch.Tensor:
    """The document of each position, int64 [B * L]; padding belongs to one more, D."""
    return batch.document_ids.flatten().remainder(len(batch.lengths) + 1)


def summed(batch: Batch, values: torch.Tensor) -> torch.Tensor:
    """Sums of `values` [B, L] over the positions of each document: [D], in their dtype, with gradient."""
    sums = values.new_zeros(len(batch.lengths) + 1)
    return sums.index_add(0, owners(batch), values.flatten())[:-1]


def learned(batch: Batch) -> torch.Tensor:
    """Which positions hold a target that something precedes: bool [B, L]."""
    found = batch.labels != IGNORE
    found[:, 0] = False
    return found


def targets(batch: Batch) -> torch.Tensor:
    """How many targets each document has: int64 [D]."""
    return summed(batch, learned(batch).long())


def places(batch: Batch) -> torch.Tensor:
    """The number of each target among those of its document, from 1: int64 [B, L]; 0 where there is none."""
    found = learned(batch).flatten().long()
    counted, own = found.cumsum(0), owners(batch)
    before = counted.new_full((len(batch.lengths) + 1,), found.numel())
    before = before.scatter_reduce(0, own, counted - found, "amin")
    return ((counted - before[own]) * found).view(batch.labels.shape)


def placed(batch: Batch, values: Sequence[torch.Tensor]) -> torch.Tensor:
    """One number for each target of each document (a 1-D tensor each, in the order of `Documents`), at its position: [B, L];
    zero elsewhere, and everywhere in a document whose labels are masked."""
    number, own = places(batch).flatten(), owners(batch)
    starts = torch.tensor([0, *(len(value) for value in values)]).cumsum(0).to(number.device)
    flat = torch.cat([*values, torch.zeros(1)]).to(number.device)
    where = torch.where(number > 0, starts[own] + number - 1, len(flat) - 1)
    return flat[where].view(batch.labels.shape)


def last_positions(batch: Batch) -> torch.Tensor:
    """Where each document's last token lies in the flat [B * L]: int64 [D]. It is found by place, never by token id."""
    own = owners(batch)
    where = torch.arange(own.numel(), device=own.device)
    return where.new_zeros(len(batch.lengths) + 1).scatter_reduce(0, own, where, "amax")[:-1]
