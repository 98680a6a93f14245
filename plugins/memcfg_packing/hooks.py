"""Packs prepared rows, and reads back from the live run how they are packed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memcfg import DataError, Plan, Problem, hookimpl, ragged, rows
from memcfg.engine.evidence import Effective
from memcfg_packing.packer import LENGTHS, T, pack

if TYPE_CHECKING:
    from memcfg.engine.ledger import Ledger

log = logging.getLogger("memcfg.packing")

BUFFER = 10_000
"""Documents of a stream that are packed at a time where no option says."""
MIXED = "documents that share a row see each other: packing is wrapped, and padding-free is off"


@hookimpl(consumes="tokens", produces="rows")
def memcfg_prepare_dataset(
    plan: Plan, dataset: datasets.Dataset | datasets.IterableDataset, ledger: Ledger, split: str
) -> datasets.Dataset | datasets.IterableDataset:
    """Packed rows; what is cut off or dropped is counted. Of a stream `packing.buffer` documents are packed at a time."""
    if plan["packing.strategy"] == "none" or (split == "eval" and not plan.get("packing.eval")):
        return dataset
    way = Way.of(plan)
    if not way.marked:
        ledger.notes.append(MIXED)
    if isinstance(dataset, datasets.IterableDataset):
        return streamed(dataset, way, plan.get("packing.buffer") or BUFFER, plan.get("run.seed") or 0, ledger)
    dataset = only_lists(dataset)
    lost = cut_to_nothing(dataset, way)
    if len(lost) == len(dataset):
        fix = f"raise `truncation.max_length` (now {way.length}), or `packing=bfd_split`"
        raise DataError(Problem(f"none of the {len(lost)} {split} rows has a target left to learn", fix=fix))
    count_lost(ledger, dataset, lost)
    if len(lost):
        dataset = dataset.select(np.delete(np.arange(len(dataset)), lost))
    packed = way.pack(dataset)
    account(ledger, dataset, packed)
    ledger.fill = int(rows.lengths(packed).sum()) / (len(packed) * way.length)
    if not ledger.tokens_supervised:
        raise DataError(Problem(f"none of the {len(packed)} packed {split} rows has a target left to learn"))
    return packed


@dataclass(frozen=True)
class Way:
    """How documents are packed. `marked`: rows keep the lengths of their documents."""

    strategy: str
    length: int
    keep: str
    marked: bool

    @classmethod
    def of(cls, plan: Plan) -> Way:
        keep = "end" if plan.get("truncation.mode") == "keep_end" else "start"
        strategy = plan["packing.strategy"]
        marked = strategy != "wrapped" or bool(plan.get("padding_free.enabled"))
        return cls(strategy, plan["truncation.max_length"], keep, marked)

    def pack(self, documents: T) -> T:
        return pack(documents, self.length, self.strategy, keep=self.keep, boundaries=self.marked)


def streamed(
    dataset: datasets.IterableDataset, way: Way, buffer: int, seed: int, ledger: Ledger
) -> datasets.IterableDataset:
    """Every `buffer` documents of a stream in packed rows. The rows come in an order drawn anew for each buffer: packing
    leaves the longest documents in the first."""
    filled = {"tokens": 0, "rows": 0}

    def over(documents: pa.Table, first: int) -> pa.Table:
        lost = cut_to_nothing(documents, way)
        count_lost(ledger, documents, lost)
        documents = documents.take(np.delete(np.arange(len(documents)), lost))
        packed = way.pack(documents)
        account(ledger, documents, packed)
        filled["tokens"], filled["rows"] = (
            filled["tokens"] + int(rows.lengths(packed).sum()),
            filled["rows"] + len(packed),
        )
        ledger.fill = filled["tokens"] / (filled["rows"] * way.length) if filled["rows"] else None
        return packed.take(np.random.default_rng([seed, first]).permutation(len(packed)))

    return rows.streamed(dataset, over, size=buffer)


def only_lists(dataset: datasets.Dataset) -> datasets.Dataset:
    """The data set without the columns that cannot be packed."""
    names = list(ragged.of(dataset))
    others = [f"`{name}`" for name in dataset.column_names if name not in names]
    if others:
        log.warning("packing drops columns that hold one value a row: %s", ", ".join(others))
    return dataset.select_columns(names)


def cut_to_nothing(documents: datasets.Dataset | pa.Table, way: Way) -> npt.NDArray[np.int64]:
    """Indices of the documents that lose all their targets in being cut to the length of a row."""
    labels = ragged.of(documents, ["labels"])["labels"]
    if way.strategy != "bfd":
        return np.zeros(0, np.int64)
    long = np.flatnonzero(labels.lengths > way.length)
    starts = labels.lengths[long] - way.length if way.keep == "end" else np.zeros_like(long)
    sizes = np.full_like(long, way.length)
    kept = labels.lists(labels.gather(long, starts, sizes), sizes)
    return long[rows.targets(pa.table({"labels": kept})) == 0]


def count_lost(ledger: Ledger, documents: datasets.Dataset | pa.Table, lost: npt.NDArray[np.int64]) -> None:
    """Count documents as dropped."""
    tokens = int(rows.lengths(documents, "labels")[lost].sum())
    ledger.drop(rows.NO_TARGET, rows=len(lost), tokens=tokens)
    ledger.add(tokens_kept=-tokens, tokens_supervised=-int(rows.targets(documents)[lost].sum()))


def account(ledger: Ledger, documents: datasets.Dataset | pa.Table, packed: datasets.Dataset | pa.Table) -> None:
    """Count what packing cut off, and what it kept."""
    before, after = int(rows.lengths(documents).sum()), int(rows.lengths(packed).sum())
    learned = int(rows.targets(packed).sum()) - int(rows.targets(documents).sum())
    ledger.add(tokens_truncated=before - after, tokens_kept=after - before, tokens_supervised=learned, bins=len(packed))


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The strategy, from the rows that are trained on and the documents of the first step; of a stream from the latter."""
    if not hasattr(run.train, "__len__"):
        return [*found, _of_stream(plan, run)]
    packed = run.train
    names = packed.column_names
    lengths = rows.lengths(packed)
    limit = plan["truncation.max_length"]
    if lengths.max(initial=0) > limit:
        return [*found, Effective("packing.strategy", "none", f"a row of {lengths.max()} tokens, where {limit} fit")]
    if LENGTHS in names:
        documents = int(rows.lengths(packed, LENGTHS).sum())
        seen = f"{len(lengths)} rows of {documents} documents, {lengths.mean() / limit:.1%} full"
    else:
        seen = f"{len(lengths)} rows without document boundaries, {lengths.mean() / limit:.1%} full"
    return [*found, Effective("packing.strategy", _shape(plan, packed, lengths), seen)]


def _of_stream(plan: Plan, run: Any) -> Effective:
    """What the first step's micro-batches tell: how many documents they hold, and that they are no longer than rows."""
    room = plan["run.batch_size"] * plan["truncation.max_length"]
    documents, tokens = sum(len(b.lengths) for b in run.first), [sum(b.lengths) for b in run.first]
    seen = f"{documents} documents of {sum(tokens)} tokens in {len(tokens)} micro-batches, each with room for {room}"
    return Effective("packing.strategy", plan["packing.strategy"] if max(tokens, default=0) <= room else "none", seen)


def _shape(plan: Plan, packed: datasets.Dataset, lengths: np.ndarray) -> str:
    """What the rows look like. Of bfd and bfd_split the lengths alone do not tell which: the plan's word counts."""
    full = lengths[:-1] == plan["truncation.max_length"]
    if plan["packing.strategy"] == "wrapped":
        return "wrapped" if full.all() else "none"
    return str(plan["packing.strategy"]) if LENGTHS in packed.column_names else "none"
