"""Packs prepared rows, and reads back from the live run how they are packed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow as pa

from memcfg import DataError, Plan, Problem, hookimpl, ragged, rows
from memcfg.engine.evidence import Effective
from memcfg_packing.packer import LENGTHS, pack

if TYPE_CHECKING:
    from memcfg.engine.ledger import Ledger

log = logging.getLogger("memcfg.packing")

MIXED = "documents that share a row see each other: packing is wrapped, and padding-free is off"


@hookimpl(consumes="tokens", produces="rows")
def memcfg_prepare_dataset(plan: Plan, dataset: datasets.Dataset, ledger: Ledger, split: str) -> datasets.Dataset:
    """Packed rows; what is cut off or dropped is counted."""
    strategy, length = plan["packing.strategy"], plan["truncation.max_length"]
    if strategy == "none" or (split == "eval" and not plan.get("packing.eval")):
        return dataset
    keep = "end" if plan.get("truncation.mode") == "keep_end" else "start"
    dataset = only_lists(dataset)
    if strategy == "bfd":
        dataset = drop_cut_to_nothing(dataset, length, keep, ledger, split)
    marked = strategy != "wrapped" or bool(plan.get("padding_free.enabled"))
    packed = pack(dataset, length, strategy, keep=keep, boundaries=marked)
    account(ledger, dataset, packed, length)
    if not marked:
        ledger.notes.append(MIXED)
    if not ledger.tokens_supervised:
        raise DataError(Problem(f"none of the {len(packed)} packed {split} rows has a target left to learn"))
    return packed


def only_lists(dataset: datasets.Dataset) -> datasets.Dataset:
    """The data set without the columns that cannot be packed."""
    names = list(ragged.of(dataset))
    others = [f"`{name}`" for name in dataset.column_names if name not in names]
    if others:
        log.warning("packing drops columns that hold one value a row: %s", ", ".join(others))
    return dataset.select_columns(names)


def drop_cut_to_nothing(
    dataset: datasets.Dataset, length: int, keep: str, ledger: Ledger, split: str
) -> datasets.Dataset:
    """Without the documents that have targets, but none in the part that fits into a row."""
    labels = ragged.of(dataset, ["labels"])["labels"]
    long = np.flatnonzero(labels.lengths > length)
    starts = labels.lengths[long] - length if keep == "end" else np.zeros_like(long)
    sizes = np.full_like(long, length)
    kept = labels.lists(labels.gather(long, starts, sizes), sizes)
    lost = long[rows.targets(pa.table({"labels": kept})) == 0]
    if len(lost) == len(dataset):
        fix = f"raise `truncation.max_length` (now {length}), or `packing=bfd_split`"
        raise DataError(Problem(f"none of the {len(lost)} {split} rows has a target left to learn", fix=fix))
    if not len(lost):
        return dataset
    tokens = int(labels.lengths[lost].sum())
    ledger.drop(rows.NO_TARGET, rows=len(lost), tokens=tokens)
    ledger.add(tokens_kept=-tokens, tokens_supervised=-int(rows.targets(dataset)[lost].sum()))
    return dataset.select(np.delete(np.arange(len(dataset)), lost))


def account(ledger: Ledger, documents: datasets.Dataset, packed: datasets.Dataset, length: int) -> None:
    """Count what packing cut off, what it kept, and how full its rows are."""
    before, after = int(rows.lengths(documents).sum()), int(rows.lengths(packed).sum())
    learned = int(rows.targets(packed).sum()) - int(rows.targets(documents).sum())
    ledger.add(tokens_truncated=before - after, tokens_kept=after - before, tokens_supervised=learned, bins=len(packed))
    ledger.fill = after / (len(packed) * length)


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The strategy, from the rows that are trained on and the documents of the first step."""
    names = run.train.column_names
    lengths = rows.lengths(run.train)
    limit = plan["truncation.max_length"]
    if lengths.max(initial=0) > limit:
        return [*found, Effective("packing.strategy", "none", f"a row of {lengths.max()} tokens, where {limit} fit")]
    if LENGTHS in names:
        documents = int(rows.lengths(run.train, LENGTHS).sum())
        seen = f"{len(lengths)} rows of {documents} documents, {lengths.mean() / limit:.1%} full"
    else:
        seen = f"{len(lengths)} rows without document boundaries, {lengths.mean() / limit:.1%} full"
    return [*found, Effective("packing.strategy", _shape(plan, run.train, lengths), seen)]


def _shape(plan: Plan, packed: datasets.Dataset, lengths: np.ndarray) -> str:
    """What the rows look like. Of bfd and bfd_split the lengths alone do not tell which: the plan's word counts."""
    full = lengths[:-1] == plan["truncation.max_length"]
    if plan["packing.strategy"] == "wrapped":
        return "wrapped" if full.all() else "none"
    return str(plan["packing.strategy"]) if LENGTHS in packed.column_names else "none"
