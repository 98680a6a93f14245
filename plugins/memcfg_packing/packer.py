"""`pack`: rows of several documents, copied together in Arrow."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import datasets
import numpy as np
import pyarrow as pa
from datasets.fingerprint import Hasher

from memcfg import DataError, Problem, arrowfile, ragged
from memcfg_packing.placement import Ints, Placement, place, validate

T = TypeVar("T", datasets.Dataset, pa.Table)

VERSION = 1
"""Part of a packed data set's fingerprint: raise it whenever rows change."""
LENGTHS = "seq_lengths"
SHARD = 500_000
"""Tokens copied at a time: the memory that packing needs beside its result and a few numbers for each document. So few that
what was copied is written while it is still in the processor's cache."""
PIECES = 200_000
"""Pieces of documents copied at a time."""
AHEAD = 2
"""Shards that are copied while the one before them is taken."""


def pack(
    dataset: T, seq_length: int, strategy: str = "bfd", *, keep: str = "start", boundaries: bool | None = None
) -> T:
    """Rows of at most `seq_length` tokens, made of the documents that the rows of `dataset` are.

    `dataset`: a `datasets.Dataset` or `pyarrow.Table` whose columns are lists, equally long within a row; the same
    comes back, every column cut alike. With `boundaries` (by default for bfd and bfd_split) the column `seq_lengths`
    (lists of int32) holds the lengths of the documents in each row. A data set that lies in files is packed into a file
    beside them, once; its tokens are never all in memory. `wrapped` needs no such file where the rows of the data set are
    all of its stored ones, in order: it cuts the stored tokens where they lie.

    `strategy`: `bfd` (best fit decreasing; documents longer than a row keep their `keep`, "start" or "end"), `bfd_split`
    (best fit decreasing; they are split into pieces) or `wrapped` (one stream in blocks). Rows come in the order in
    which they were opened; the result depends on the input alone.

    Raises `DataError` for a column that is no list or whose lists differ in length from the first column's, `ValueError`
    for a wrong argument."""
    validate(seq_length, strategy, keep)
    columns = checked(dataset)
    marked = strategy != "wrapped" if boundaries is None else boundaries
    schema = _schema(columns, marked)

    whole = next(iter(columns.values()))
    in_order = strategy == "wrapped" and whole.selection is None

    def rows() -> Iterator[pa.RecordBatch]:
        if in_order and not marked:
            return blocks(ragged.stored(dataset)[0], seq_length, schema)
        placement = place(whole.lengths, seq_length, strategy, keep=keep)
        if in_order:
            return with_boundaries(
                blocks(ragged.stored(dataset)[0], seq_length, _schema(columns, False)), placement, schema
            )
        return placed(columns, placement, schema)

    if isinstance(dataset, pa.Table):
        return pa.Table.from_batches(rows(), schema)
    return _dataset(dataset, schema, rows, [seq_length, strategy, keep, marked], write=not in_order)


def checked(dataset: Any) -> dict[str, ragged.Ragged]:
    """The columns of a data set. Raises `DataError` unless all are lists that are equally long within a row."""
    table, _ = ragged.stored(dataset)
    others = [name for name in table.column_names if not ragged.is_list(table.schema.field(name).type)]
    if others:
        kinds = ", ".join(f"`{name}` ({table.schema.field(name).type})" for name in others)
        raise DataError(Problem(f"only lists can be packed, not {kinds}", fix="remove those columns"))
    if LENGTHS in table.column_names:
        raise DataError(Problem(f"the rows are packed already: they have `{LENGTHS}`"))
    columns = ragged.of(dataset)
    if not columns:
        raise DataError(Problem("there is no column to pack"))
    (first, expected), *rest = ((name, column.lengths) for name, column in columns.items())
    for name, found in rest:
        if len(differ := np.flatnonzero(found != expected)):
            row = int(differ[0])
            text = f"row {row} has {expected[row]} values in `{first}` and {found[row]} in `{name}`"
            raise DataError(Problem(text, fix="all columns must be equally long within a row"))
    return columns


def placed(columns: dict[str, ragged.Ragged], placement: Placement, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The placed rows, copied shard by shard into record batches: all columns at once, and one shard ahead of who takes
    them (Arrow copies without holding Python's lock)."""
    lengths = placement.row_lengths
    pieces = np.concatenate([[0], np.cumsum(placement.counts)])

    def copied(column: ragged.Ragged, first: int, end: int) -> pa.Array:
        part = placement.pieces(int(pieces[first]), int(pieces[end]))
        return column.lists(column.gather(*part), lengths[first:end])

    def batch(first: int, end: int, arrays: list[Future[pa.Array]]) -> pa.RecordBatch:
        found = [array.result() for array in arrays]
        if LENGTHS in schema.names:
            found.append(boundaries(placement, pieces, first, end))
        return pa.RecordBatch.from_arrays(found, schema=schema)

    with ThreadPoolExecutor(min(len(columns), os.cpu_count() or 1), thread_name_prefix="packing") as pool:
        waiting: deque[tuple[int, int, list[Future[pa.Array]]]] = deque()
        for first, end in shards(lengths, placement.counts):
            waiting.append((first, end, [pool.submit(copied, c, first, end) for c in columns.values()]))
            if len(waiting) > AHEAD:
                yield batch(*waiting.popleft())
        while waiting:
            yield batch(*waiting.popleft())


def boundaries(placement: Placement, pieces: Ints, first: int, end: int) -> pa.Array:
    """The lengths of the documents in the rows `first` to `end`. `pieces`: the index of each row's first piece."""
    sizes = placement.lengths[int(pieces[first]) : int(pieces[end])]
    return ragged.lists(pa.array(sizes.astype(np.int32)), placement.counts[first:end])


def shards(lengths: Ints, counts: Ints) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of rows with about `SHARD` tokens or `PIECES` pieces, and at least one row."""
    tokens, pieces = np.cumsum(lengths), np.cumsum(counts)
    first = 0
    while first < len(lengths):
        before = (int(tokens[first - 1]), int(pieces[first - 1])) if first else (0, 0)
        by_tokens = np.searchsorted(tokens, before[0] + SHARD, side="right")
        by_pieces = np.searchsorted(pieces, before[1] + PIECES, side="right")
        end = max(first + 1, int(min(by_tokens, by_pieces)))
        yield first, end
        first = end


def blocks(table: pa.Table, capacity: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """One stream of all values cut into rows. Nothing is copied but the rows that cross from one chunk to the next."""
    # Columns may be chunked differently; record batches are where all of them are cut.
    columns = ragged.of(pa.Table.from_batches(table.to_batches(), table.schema))
    for values in zip(*(_stream(column, capacity) for column in columns.values()), strict=True):
        total = len(values[0])
        lengths = np.full(-(-total // capacity), capacity)
        lengths[-1] -= -total % capacity
        arrays = [c.lists(flat, lengths) for c, flat in zip(columns.values(), values, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def with_boundaries(
    batches: Iterator[pa.RecordBatch], placement: Placement, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The batches of `blocks` with the lengths of the documents in each row."""
    pieces = np.concatenate([[0], np.cumsum(placement.counts)])
    first = 0
    for batch in batches:
        end = first + len(batch)
        found = boundaries(placement, pieces, first, end)
        yield pa.RecordBatch.from_arrays([*batch.columns, found], schema=schema)
        first = end


def _stream(column: ragged.Ragged, capacity: int) -> Iterator[pa.Array]:
    """The values of a column in pieces of whole rows; the last may be short."""
    waiting: list[pa.Array] = []
    for _, values in column.parts():
        missing = -sum(map(len, waiting)) % capacity
        waiting, values = [*waiting, values[:missing]], values[missing:]
        if sum(map(len, waiting)) == capacity:
            yield pa.concat_arrays(waiting)
            waiting = []
        whole = len(values) - len(values) % capacity
        if whole:
            yield values[:whole]
        waiting = [w for w in (*waiting, values[whole:]) if len(w)]
    if waiting:
        yield pa.concat_arrays(waiting)


def _dataset(
    source: datasets.Dataset, schema: pa.Schema, make: arrowfile.Batches, depends_on: list[Any], *, write: bool
) -> datasets.Dataset:
    """The rows as a data set in the format of its source: from the file where they are kept, or made now. Rows that only
    point into their source's are not written."""
    fingerprint = str(Hasher.hash([source._fingerprint, "memcfg.packing", VERSION, *depends_on]))
    path = _beside(source, fingerprint)
    about = {"fingerprint": fingerprint, "split": source.split}
    if path is None or not write:
        return _formatted(arrowfile.made(None, schema, make, **about), source)
    with arrowfile.locked(path):
        packed = arrowfile.cached(path, **about)
        return _formatted(arrowfile.made(path, schema, make, **about) if packed is None else packed, source)


def _schema(columns: dict[str, ragged.Ragged], boundaries: bool) -> pa.Schema:
    kinds = {name: (pa.large_list if c.large else pa.list_)(c.value_type) for name, c in columns.items()}
    return pa.schema(kinds | ({LENGTHS: pa.list_(pa.int32())} if boundaries else {}))


def _beside(dataset: datasets.Dataset, fingerprint: str) -> Path | None:
    """Where a data set that lies in files keeps what is made of it."""
    files = dataset.cache_files
    return Path(files[0]["filename"]).with_name(f"packed-{fingerprint}.arrow") if files else None


def _formatted(packed: datasets.Dataset, source: datasets.Dataset) -> datasets.Dataset:
    """The packed rows in the format of their source."""
    form = source.format
    if form["type"] is None:
        return packed
    named = [*form["columns"], *([LENGTHS] if LENGTHS in packed.column_names else [])]
    return packed.with_format(form["type"], columns=named, **form["format_kwargs"])
