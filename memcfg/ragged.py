"""Lists of different lengths in Arrow columns: their lengths, and copies of any ranges of them, without Python lists.

    column = Ragged(table["input_ids"])
    column.lengths                             # int64 [N]
    column.gather(rows, starts, lengths)       # one flat Arrow array: values[start : start + length] of each row

Slices, chunks, nulls (empty lists) and `list`, `large_list` and fixed-size lists are all honoured; the values are never
converted. `of(dataset)` gives a data set's columns with the rows that a selection or shuffle left, without copying.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
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
        self.value_type = column.type.value_type
        self.large = pa.types.is_large_list(column.type)
        self.selection = selection
        self._chunks = [_plain(chunk) for chunk in column.chunks if len(chunk)]

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Length of each list: int64 [N]."""
        return self._selected([np.diff(chunk.offsets.to_numpy()) for chunk in self._chunks])

    def gather(self, rows: Ints, starts: Ints, lengths: Ints) -> pa.Array:
        """`values[start : start + length]` of each named row, one after another in the order given."""
        values, begins = self._joined
        sizes = pa.array(np.asarray(lengths, np.int64))
        return pa.LargeListViewArray.from_arrays(pa.array(begins[rows] + starts), sizes, values).flatten()

    def parts(self) -> Iterator[tuple[npt.NDArray[np.int64], pa.Array]]:
        """For each stored chunk that is not empty, its offsets from zero and its values; the selection plays no part."""
        for chunk in self._chunks:
            offsets = chunk.offsets.to_numpy().astype(np.int64, copy=False)
            yield offsets - offsets[0], chunk.values[int(offsets[0]) : int(offsets[-1])]

    def lists(self, values: pa.Array, lengths: Ints) -> pa.Array:
        """Flat values cut into lists of these lengths, of the same kind of list as the column."""
        return lists(values, lengths, large=self.large)

    @cached_property
    def _joined(self) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """All values as one array, and where in it each row begins."""
        values, bases = _one_array([chunk.values for chunk in self._chunks], self.value_type)
        begins = [
            chunk.offsets.to_numpy()[:-1].astype(np.int64) + base
            for chunk, base in zip(self._chunks, bases, strict=True)
        ]
        return values, self._selected(begins)

    def _selected(self, parts: list[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
        """Numbers of the stored rows, chunk by chunk, as numbers of the rows seen from outside."""
        stored = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64, copy=False)
        return stored if self.selection is None else stored[self.selection]


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type can be a `Ragged`."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def lists(values: pa.Array, lengths: Ints, *, large: bool = False) -> pa.Array:
    """A list array that cuts flat values into lists of these lengths; the values are not copied."""
    offsets = np.zeros(len(lengths) + 1, np.int64 if large else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    kind = pa.LargeListArray if large else pa.ListArray
    return kind.from_arrays(pa.array(offsets), values)


def of(dataset: Any, names: list[str] | None = None) -> dict[str, Ragged]:
    """The list columns of a `datasets.Dataset` or `pyarrow.Table`, or the named ones, without copying any."""
    table, selection = stored(dataset)
    wanted = [n for n in table.column_names if is_list(table.schema.field(n).type)] if names is None else names
    return {name: Ragged(table.column(name), selection) for name in wanted}


def stored(dataset: Any) -> tuple[pa.Table, Ints | None]:
    """The table behind a data set and which of its rows are meant (`None`: all, in order)."""
    if isinstance(dataset, pa.Table):
        return dataset, None
    if not hasattr(dataset, "_indices"):
        raise TypeError(f"a `datasets.Dataset` or `pyarrow.Table` is needed, not a `{type(dataset).__name__}`")
    indices = dataset._indices  # there is no public way to read a selection without copying the rows it names
    selection = None if indices is None else indices.column(0).to_numpy().astype(np.int64, copy=False)
    return dataset.data.table, selection


def _plain(chunk: pa.Array) -> pa.Array:
    """The chunk as a list array without nulls, whose offsets cover its values without gaps."""
    if pa.types.is_fixed_size_list(chunk.type):
        chunk = chunk.cast(pa.list_(chunk.type.value_type))
    if not chunk.null_count:
        return chunk
    lengths = pc.fill_null(pc.list_value_length(chunk), 0).to_numpy()
    return lists(chunk.flatten(), lengths, large=pa.types.is_large_list(chunk.type))


def _one_array(parts: list[pa.Array], kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Arrays as one, and the index in it at which each begins.

    A data set of a million rows has a thousand chunks. To gather from all of them at once without joining (copying)
    them, the array returned spans the memory from the first to the last; what lies between them is never read, since
    only ranges inside of them are ever asked for."""
    if len(parts) < 2:
        return (parts[0] if parts else pa.array([], kind)), [0] * len(parts)
    width = _width(parts, kind)
    places = [part.buffers()[1].address + part.offset * (width or 0) for part in parts]
    first = min(places)
    if width is None or any((place - first) % width for place in places):
        return pa.concat_arrays(parts), np.cumsum([0, *map(len, parts[:-1])]).tolist()
    bases = [(place - first) // width for place in places]
    length = max(base + len(part) for base, part in zip(bases, parts, strict=True))
    span = pa.foreign_buffer(first, length * width, base=parts)
    return pa.Array.from_buffers(kind, length, [None, span], null_count=0), bases


def _width(parts: list[pa.Array], kind: pa.DataType) -> int | None:
    """Bytes of one value; None where values are not simply laid one after another."""
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not plain or any(part.null_count for part in parts) or any(part.buffers()[1] is None for part in parts):
        return None
    return int(kind.bit_width // 8)
