"""Cuts prepared rows, every column alike."""

from __future__ import annotations

import datasets
import numpy as np
import pyarrow as pa

from memcfg import Plan, hookimpl, ragged, rows
from memcfg.engine.ledger import Ledger

VERSION = 1
"""Part of the cache's fingerprint: raise it whenever cutting changes."""


@hookimpl(consumes="tokens", produces="tokens")
def memcfg_prepare_dataset(plan: Plan, dataset: datasets.Dataset, ledger: Ledger, split: str) -> datasets.Dataset:
    """Rows of at most `truncation.max_length` tokens that have a target; what is cut or dropped is counted."""
    limit = plan.get("truncation.max_length")
    if limit is None or packed(plan, split):
        return dataset
    lengths = rows.lengths(dataset)
    if not (lengths > limit).any():
        return dataset
    before = int(rows.targets(dataset).sum())
    shorter = cut(dataset, limit, plan["truncation.mode"])
    keep = rows.with_targets(shorter, split=split, fix=advice(plan))
    dropped, cut_off = int(lengths[~keep].sum()), int(np.maximum(lengths - limit, 0)[keep].sum())
    ledger.drop(rows.NO_TARGET, rows=int((~keep).sum()), tokens=dropped)
    ledger.add(
        tokens_truncated=cut_off,
        tokens_kept=-dropped - cut_off,
        tokens_supervised=int(rows.targets(shorter).sum()) - before,
    )
    return shorter if keep.all() else shorter.select(np.flatnonzero(keep))


def packed(plan: Plan, split: str) -> bool:
    """Whether the rows of this split will be packed, which does its own cutting."""
    if plan.get("packing.strategy") in (None, "none"):
        return False
    return split == "train" or bool(plan.get("packing.eval"))


def advice(plan: Plan) -> str:
    """What to write where cutting left nothing to learn."""
    other = "keep_end" if plan["truncation.mode"] == "keep_start" else "keep_start"
    return f"raise `truncation.max_length` (now {plan['truncation.max_length']}), or try `truncation.mode={other}`"


def cut(dataset: datasets.Dataset, limit: int, mode: str) -> datasets.Dataset:
    """Rows with at most the first (or last) `limit` values of every list column."""
    if mode not in ("keep_start", "keep_end"):
        raise ValueError(f"no such mode: {mode!r}; there are keep_start and keep_end")
    names = list(ragged.of(dataset))
    return rows.mapped(
        dataset, lambda table: _cut(table, names, limit, mode), features=dataset.features, desc="truncating",
        depends_on=["memcfg.truncation", VERSION, limit, mode], form="arrow",
    )  # fmt: skip


def _cut(table: pa.Table, names: list[str], limit: int, mode: str) -> pa.Table:
    for name in names:
        column = ragged.Ragged(table.column(name))
        lengths = column.lengths
        kept = np.minimum(lengths, limit)
        starts = lengths - kept if mode == "keep_end" else np.zeros_like(lengths)
        shorter = column.lists(column.gather(np.arange(len(lengths)), starts, kept), kept)
        table = table.set_column(table.column_names.index(name), name, shorter)
    return table
