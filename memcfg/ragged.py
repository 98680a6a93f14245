"""Lists of different lengths in Arrow columns: their lengths, and copies of any ranges of them, without Python lists.

    column = Ragged(table["input_ids"])
    column.lengths                             # int64 [N]
    column.gather(rows, starts, lengths)       # an Arrow list array: values[start : start + length] of each row

Slices, chunks, nulls (empty lists) and `list`, `large_list` and fixed-size lists are all honoured; the values are never
converted. `of(dataset)` gives a data set's columns with the rows that a selection or shuffle left, without copying.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.integer[Any]]


class Ragged:
    """One list column. `selection` gives, for each row seen from outside, the row of the column behind it."""

    def __init__(self, column: pa.ChunkedArray, selection: Ints | None = None) -> None:
        if not is_list(column.type):
            raise TypeError(f"a column of lists is needed, not {column.type}")
        self.type = column.type
        self.large = pa.types.is_large_list(column.type)
        self._chunks = [_plain(chunk) for chunk in column.chunks if len(chunk)]
        self._first = np.cumsum([0, *map(len, self._chunks)])
        self._selection = selection

    def __len__(self) -> int:
        return int(self._first[-1]) if self._selection is None else len(self._selection)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Length of each list: int64 [N]."""
        parts = [np.diff(chunk.offsets.to_numpy()) for chunk in self._chunks]
        stored = np.concatenate(parts).astype(np.int64, copy=False) if parts else np.zeros(0, np.int64)
        return stored if self._selection is None else stored[self._selection]

    @property
    def value_type(self) -> pa.DataType:
        return self.type.value_type

    def parts(self) -> Iterator[tuple[npt.NDArray[np.int64], pa.Array]]:
        """For each stored chunk, its offsets (from zero) and its values: what a pass over all values needs.

        Only of a column without a selection."""
        if self._selection is not None:
            raise TypeError("a selection has no contiguous parts")
        for chunk in self._chunks:
            offsets = chunk.offsets.to_numpy().astype(np.int64, copy=False)
            yield offsets - offsets[0], chunk.values[int(offsets[0]) : int(offsets[-1])]

    def gather(self, rows: Ints, starts: Ints, lengths: Ints) -> pa.Array:
        """`values[start : start + length]` of each named row, in the order given. No two ranges may overlap.

        The ranges become entries of a list array over the same values, with the gaps between them as further entries;
        Arrow's own `take` then copies them, one block of memory for each."""
        if self._selection is not None:
            rows = self._selection[rows]
        order = _ascending(rows, starts)
        if order is not None:
            rows, starts, lengths = rows[order], starts[order], lengths[order]
        bounds = np.searchsorted(rows, self._first)
        pieces = [
            _ranges(chunk, rows[a:b] - first, starts[a:b], lengths[a:b])
            for chunk, first, a, b in zip(self._chunks, self._first[:-1], bounds[:-1], bounds[1:], strict=True)
            if b > a
        ]
        if not pieces:
            return pa.array([], self._gathered_type())
        if order is None:
            return pa.concat_arrays([whole.take(entries) for whole, entries in pieces])
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        if len(pieces) == 1:
            whole, entries = pieces[0]
            return whole.take(pa.array(entries.to_numpy()[back]))
        return pa.concat_arrays([whole.take(entries) for whole, entries in pieces]).take(pa.array(back))

    def _gathered_type(self) -> pa.DataType:
        return (pa.large_list if self.large else pa.list_)(self.value_type)


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def lists(values: pa.Array, lengths: Ints, *, large: bool = False) -> pa.Array:
    """A list array that cuts flat values into lists of these lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64 if large else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    kind = pa.LargeListArray if large else pa.ListArray
    return kind.from_arrays(pa.array(offsets), values)


def flat(array: pa.Array) -> pa.Array:
    """All values of a list array that holds no nulls, in one array."""
    return array.values[array.offsets[0].as_py() : array.offsets[-1].as_py()]


def of(dataset: Any, names: list[str] | None = None) -> dict[str, Ragged]:
    """The list columns of a `datasets.Dataset` or `pyarrow.Table`, or the named ones, without copying any."""
    table, selection = stored(dataset)
    wanted = [n for n in table.column_names if is_list(table.schema.field(n).type)] if names is None else names
    return {name: Ragged(table.column(name), selection) for name in wanted}


def stored(dataset: Any) -> tuple[pa.Table, Ints | None]:
    """The table behind a data set and which of its rows are meant (`None`: all, in order)."""
    if isinstance(dataset, pa.Table):
        return dataset, None
    indices = dataset._indices  # there is no public way to read a selection without copying the rows it names
    selection = None if indices is None else indices.column(0).to_numpy().astype(np.int64, copy=False)
    return dataset.data.table, selection


def _plain(chunk: pa.Array) -> pa.Array:
    """The chunk as a list array without nulls whose offsets cover its values without gaps."""
    if pa.types.is_fixed_size_list(chunk.type):
        chunk = chunk.cast(pa.list_(chunk.type.value_type))
    if not chunk.null_count:
        return chunk
    lengths = pc.fill_null(pc.list_value_length(chunk), 0).to_numpy()
    return lists(chunk.flatten(), lengths, large=pa.types.is_large_list(chunk.type))


def _ascending(rows: Ints, starts: Ints) -> Ints | None:
    """The order that sorts ranges as they lie in memory; None where they do already."""
    step = np.diff(rows)
    if (step > 0).all() or ((step >= 0).all() and (np.diff(starts)[step == 0] >= 0).all()):
        return None
    return np.lexsort((starts, rows))


def _ranges(chunk: pa.Array, rows: Ints, starts: Ints, lengths: Ints) -> tuple[pa.Array, pa.Array]:
    """A list array over the chunk's values that has each range as an entry, and the indices of those entries."""
    offsets = chunk.offsets.to_numpy()
    begins = offsets[rows] + starts
    edges = np.empty(2 * len(rows), offsets.dtype)
    edges[0::2], edges[1::2] = begins, begins + lengths
    whole = type(chunk).from_arrays(pa.array(edges), chunk.values)
    return whole, pa.array(np.arange(len(rows), dtype=np.int64) * 2)
