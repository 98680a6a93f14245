"""Cuts prepared rows, every column alike."""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memcfg import Plan, hookimpl, ragged, rows
from memcfg.engine.ledger import Ledger

VERSION = 1
"""Part of the cache's fingerprint: raise it whenever cutting changes."""
AT_A_TIME = 64
"""Rows of a stream that are cut at a time."""


@hookimpl(consumes="tokens", produces="tokens")
def memcfg_prepare_dataset(
    plan: Plan, dataset: datasets.Dataset | datasets.IterableDataset, ledger: Ledger, split: str
) -> datasets.Dataset | datasets.IterableDataset:
    """Rows of at most `truncation.max_length` tokens that have a target; what is cut or dropped is counted.

    Rows of several documents come from trainers that compare documents, and cut each of them by itself."""
    limit = plan.get("truncation.max_length")
    if limit is None or packed(plan, split) or "seq_lengths" in (dataset.column_names or ()):
        return dataset
    if isinstance(dataset, datasets.IterableDataset):
        return streamed(dataset, limit, plan["truncation.mode"], ledger)
    if not (rows.lengths(dataset) > limit).any():
        return dataset
    shorter = cut(dataset, limit, plan["truncation.mode"])
    keep = rows.with_targets(shorter, split=split, fix=advice(plan))
    account(ledger, dataset, shorter, keep, limit)
    return shorter if keep.all() else shorter.select(np.flatnonzero(keep))


def account(ledger: Ledger, whole: Any, shorter: Any, keep: npt.NDArray[np.bool_], limit: int) -> None:
    """Count what was cut off the rows that stay, and the rows that do not."""
    lengths = rows.lengths(whole)
    dropped, cut_off = int(lengths[~keep].sum()), int(np.maximum(lengths - limit, 0)[keep].sum())
    ledger.drop(rows.NO_TARGET, rows=int((~keep).sum()), tokens=dropped)
    learned = int(rows.targets(shorter).sum()) - int(rows.targets(whole).sum())
    ledger.add(tokens_truncated=cut_off, tokens_kept=-dropped - cut_off, tokens_supervised=learned)


def streamed(dataset: datasets.IterableDataset, limit: int, mode: str, ledger: Ledger) -> datasets.IterableDataset:
    """The same of rows that come one after another, counted as they come."""

    def over(table: pa.Table, _: int) -> pa.Table:
        shorter = _cut(table, list(ragged.of(table)), limit, mode)
        keep = rows.targets(shorter) > 0
        account(ledger, table, shorter, keep, limit)
        return shorter.filter(pa.array(keep))

    return rows.streamed(dataset, over, size=AT_A_TIME)


def packed(plan: Plan, split: str) -> bool:
    """Whether the rows of this split will be packed, which does its own cutting."""
    if plan.get("packing.strategy") in (None, "none"):
        return False
    return split == "train" or bool(plan.get("packing.eval"))


def advice(plan: Plan) -> str:
    """What to write where cutting left nothing to learn."""
    if plan["truncation.max_length"] == 1:
        return "raise `truncation.max_length`: a target needs a token before it"
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
