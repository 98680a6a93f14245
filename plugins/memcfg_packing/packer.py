"""`pack`: rows of several documents, copied together in Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import datasets
import numpy as np
import pyarrow as pa
from datasets.fingerprint import Hasher

from memcfg import DataError, Problem, arrowfile, ragged
from memcfg_packing.placement import Placement, place

T = TypeVar("T", datasets.Dataset, pa.Table)

VERSION = 1
"""Part of a packed data set's fingerprint: raise it whenever rows change."""
LENGTHS = "seq_lengths"
SHARD = 4_000_000
"""Tokens copied at a time: the memory that packing needs beside its result and a few numbers for each document."""


def pack(
    dataset: T, seq_length: int, strategy: str = "bfd", *, keep: str = "start", boundaries: bool | None = None
) -> T:
    """Rows of at most `seq_length` tokens, made of the documents that the rows of `dataset` are.

    `dataset`: a `datasets.Dataset` or `pyarrow.Table` whose columns are lists, equally long within a row; the same
    comes back, every column cut alike. With `boundaries` (by default for bfd and bfd_split) the column `seq_lengths`
    (lists of int32) holds the lengths of the documents in each row. A data set that lies in files is packed into a file
    beside them, once; its tokens are never all in memory.

    `strategy`: `bfd` (best fit decreasing; documents longer than a row keep their `keep`, "start" or "end"), `bfd_split`
    (best fit decreasing; they are split into pieces) or `wrapped` (one stream in blocks). Rows come in the order in
    which they were opened; the result depends on the input alone.

    Raises `DataError` for a column that is no list or whose lists differ in length from the first column's, `ValueError`
    for a wrong argument."""
    columns = checked(dataset)
    marked = strategy != "wrapped" if boundaries is None else boundaries
    schema = _schema(columns, marked)
    if isinstance(dataset, pa.Table):
        placement = _placed(columns, seq_length, strategy, keep)
        return pa.Table.from_batches(batches(columns, placement, schema), schema)
    fingerprint = str(
        Hasher.hash([dataset._fingerprint, "memcfg.packing", VERSION, seq_length, strategy, keep, marked])
    )
    path = _beside(dataset, fingerprint)
    about = {"fingerprint": fingerprint, "split": dataset.split}
    packed = None if path is None else arrowfile.cached(path, **about)
    if packed is None:
        placement = _placed(columns, seq_length, strategy, keep)
        packed = arrowfile.made(path, schema, lambda: batches(columns, placement, schema), **about)
    return _formatted(packed, dataset)


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


def batches(columns: dict[str, ragged.Ragged], placement: Placement, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The placed rows, copied shard by shard into record batches of about `SHARD` tokens."""
    lengths = placement.row_lengths
    tokens = np.cumsum(lengths)
    pieces = np.concatenate([[0], np.cumsum(placement.counts)])
    first = 0
    while first < len(tokens):
        before = int(tokens[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(tokens, before + SHARD, side="right")))
        part = placement.pieces(int(pieces[first]), int(pieces[end]))
        arrays = [
            ragged.lists(ragged.flat(c.gather(*part)), lengths[first:end], large=c.large) for c in columns.values()
        ]
        if LENGTHS in schema.names:
            sizes = pa.array(part[2].astype(np.int32))
            arrays.append(ragged.lists(sizes, placement.counts[first:end]))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        first = end


def _placed(columns: dict[str, ragged.Ragged], seq_length: int, strategy: str, keep: str) -> Placement:
    return place(next(iter(columns.values())).lengths, seq_length, strategy, keep=keep)


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
