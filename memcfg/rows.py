"""What plugins that prepare data share: counting the tokens and targets of prepared rows, and dropping rows without any.

A target is a position that the model is trained to predict: a label other than -100, the first of a row excepted, since
nothing precedes it. The columns are those of `memcfg.batch`. Counts go into the ledger in such a way that
`tokens_in == tokens_kept + tokens_truncated + tokens_dropped` holds after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memcfg import arrowfile, ragged
from memcfg.batch import IGNORE
from memcfg.errors import DataError, Problem

if TYPE_CHECKING:
    import datasets

    from memcfg.engine.ledger import Ledger

NO_TARGET = "no target left"
"""The ledger's reason for rows that nothing could be learned from."""
TYPES = {"input_ids": pa.list_(pa.int32()), "labels": pa.list_(pa.int32()), "seq_lengths": pa.list_(pa.int32())}
"""Arrow types of the columns of prepared rows, which empty ones do not show."""
QUIET = 20_000
"""Fewer rows than this are mapped without a progress bar."""


def lengths(dataset: Any, column: str = "input_ids") -> npt.NDArray[np.int64]:
    """Tokens in each row: int64 [N]."""
    return ragged.of(dataset, [column])[column].lengths


def targets(dataset: Any) -> npt.NDArray[np.int64]:
    """Targets in each row after the shift by one: int64 [N]. In a packed row each document's first token is none."""
    table, selection = ragged.stored(dataset)
    stored = np.concatenate([np.zeros(0, np.int64), *map(_targets, table.to_batches())])
    return stored if selection is None else stored[selection]


def drop_without_targets(dataset: Any, ledger: Ledger, *, split: str, fix: str | None = None) -> Any:
    """The rows that have a target, the others counted as dropped. Raises `DataError` where none is left."""
    keep = with_targets(dataset, split=split, fix=fix)
    if keep.all():
        return dataset
    lost = int(lengths(dataset)[~keep].sum())
    ledger.drop(NO_TARGET, rows=int((~keep).sum()), tokens=lost)
    ledger.add(tokens_kept=-lost)
    return dataset.select(np.flatnonzero(keep))


def table_with_targets(table: pa.Table, ledger: Ledger) -> pa.Table:
    """Those rows of a piece of a stream that have a target, the others counted as dropped."""
    keep = targets(table) > 0
    if keep.all():
        return table
    lost = int(lengths(table)[~keep].sum())
    ledger.drop(NO_TARGET, rows=int((~keep).sum()), tokens=lost)
    ledger.add(tokens_kept=-lost)
    return table.filter(pa.array(keep))


def with_targets(dataset: Any, *, split: str, fix: str | None = None) -> npt.NDArray[np.bool_]:
    """Which rows have a target: bool [N]. Raises `DataError` where none has; `fix` is what the user could write."""
    keep = targets(dataset) > 0
    if len(keep) and not keep.any():
        raise DataError(Problem(f"none of the {len(keep)} {split} rows has a target left to learn", fix=fix))
    return keep


def mapped(
    dataset: datasets.Dataset, function: Callable[[Any], Any], *, depends_on: Any, features: datasets.Features,
    desc: str, form: str | None = None, workers: int | None = None,
) -> datasets.Dataset:  # fmt: skip
    """`function` over batches of rows, given in the format `form` ("arrow": tables); its columns replace all others.

    The result is kept in the cache folder by the data set and `depends_on`: everything, code version included, that it
    depends on. Of several processes that want it one makes it. `workers`: how many processes share the making."""
    from datasets.fingerprint import Hasher

    fingerprint = str(Hasher.hash([dataset._fingerprint, depends_on]))
    many = len(dataset) >= QUIET

    def made(path: Path | None) -> datasets.Dataset:
        with _bars(many), _workers_told(workers if many else None):
            return dataset.with_format(form).map(
                function, batched=True, remove_columns=dataset.column_names, features=features, desc=desc,
                new_fingerprint=fingerprint, num_proc=workers if many else None,
                cache_file_name=None if path is None else str(path), keep_in_memory=path is None,
            ).with_format(None)  # fmt: skip

    if not dataset.cache_files:
        return made(None)
    return arrowfile.kept(arrowfile.folder() / f"rows-{fingerprint}.arrow", made)


def streamed(
    dataset: datasets.IterableDataset, function: Callable[[pa.Table, int], pa.Table], *, size: int
) -> datasets.IterableDataset:
    """`function` over every `size` rows of a stream of prepared rows, given the number of the first; its columns replace
    all others. The state of the result is its source's at the beginning of those rows, and how many rows it has given."""

    def over(batch: dict[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        table = pa.table({name: pa.array(values, TYPES.get(name)) for name, values in batch.items()})
        return dict(function(table, numbers[0]).to_pydict())

    return dataset.map(over, batched=True, batch_size=size, with_indices=True)


@contextmanager
def _workers_told(workers: int | None) -> Iterator[None]:
    """Say in one line that a process which prepared rows was killed. Raises `DataError`."""
    try:
        yield
    except RuntimeError as error:
        if workers is None or "subprocess" not in str(error):
            raise
        text = f"one of the {workers} processes that prepared the rows was killed, most likely for want of host memory"
        fix = f"data.num_proc={max(1, workers // 2)}, or null for one process"
        raise DataError(Problem(text, key="data.num_proc", fix=fix)) from error


@contextmanager
def _bars(shown: bool) -> Iterator[None]:
    """Progress bars of `datasets` off unless shown (and as they were before, afterwards)."""
    from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _targets(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Targets in each row of one record batch."""
    if not len(batch):
        return np.zeros(0, np.int64)
    offsets, labels = _column(batch, "labels")
    learned = labels.to_numpy(zero_copy_only=False) != IGNORE
    starts, lengths = offsets[:-1], np.diff(offsets)
    if "seq_lengths" in batch.schema.names:
        lengths = _column(batch, "seq_lengths")[1].to_numpy().astype(np.int64)
        starts = np.cumsum(lengths) - lengths
    learned[starts[lengths > 0]] = False
    before = np.concatenate([[0], np.cumsum(learned)])
    return before[offsets[1:]] - before[offsets[:-1]]


def _column(batch: pa.RecordBatch, name: str) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Offsets and values of one list column."""
    return next(ragged.Ragged(pa.chunked_array([batch.column(name)])).parts())
