"""Columns that lie in Arrow already: Parquet files, and data sets of the hub. Rows come out in the forms of `memcfg_data.forms`.

Conversations that lie in structs become JSON, without the nulls that structs add. A fault is reported with the number of
its row, from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memcfg import DataError, Problem, ragged
from memcfg.batch import IGNORE
from memcfg_data import forms, table
from memcfg_data.forms import Columns

VERSION = 3
"""Part of the cache's name: raise it whenever reading changes."""

BATCH = 10_000
"""Rows in one Arrow record batch."""
SKIP = "data.on_error=skip"


@dataclass
class Reader:
    """Reads one file, or the record batches that `source` makes; `path` then only names them. The fields are those of
    `memcfg_data.jsonl.Reader`."""

    path: Path | str
    columns: Columns = field(default_factory=dict)
    only: Sequence[str] | None = None
    skip: bool = False
    source: Callable[[], Iterator[pa.RecordBatch]] | None = None
    schema: pa.Schema | None = None
    rows: int = 0
    filled: int = 0
    held: set[str] = field(default_factory=set)
    skipped: int = 0
    first_fault: Problem | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches. Raises `DataError` at the first bad row, or at the end for all of them."""
        if not self.columns:
            self.columns = self.find_columns()
        self.rows = self.filled = self.skipped = 0
        for batch in self._read():
            yield self._converted(batch)
            self.rows += len(batch)
        self.finish()

    def numbered(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Rows of plain values with their numbers."""
        for batch in self.batches():
            first = self.rows + 1
            names = batch.schema.names
            columns = [table.loaded(batch.column(name)) for name in names]
            for number, values in enumerate(zip(*columns, strict=True), first):
                yield number, dict(zip(names, values, strict=True))

    def find_columns(self, *, whole: bool = True) -> Columns:
        """The columns and their kinds, from the file's schema. Raises `DataError`."""
        schema = self._schema()
        there = [name for name in schema.names if self.only is None or name in self.only]
        if not there and schema.names:
            raise DataError(
                Problem(f"has none of `data.columns`; its columns: {forms.listed(schema.names)}", str(self.path))
            )
        try:
            form = forms.form_of(there)
        except forms.FormError as error:
            fix = "name the columns to read, as in `data.columns=[messages]`" if " together" in str(error) else None
            raise DataError(Problem(str(error), str(self.path), fix=fix)) from error
        types = {name: schema.field(name).type for name in there}
        kinds = {name: self._kind(name, types[name]) for name in form}
        known = {n: k for n, k in forms.BESIDE.get(form, {}).items() if n in types}
        beside = {n: self._kind_beside(n, k, types[n]) for n, k in known.items()}
        if "turns" in kinds.values():
            beside |= {name: "json" for name in forms.LATER if name in types}
        if form == ("prompt",):
            others = [name for name in there if name not in (*forms.MAIN, *forms.LATER)]
            beside |= {name: "string" if _is_text(types[name]) else "json" for name in others}
        return kinds | beside

    def finish(self) -> None:
        """Raise `DataError` where no row can be used."""
        if not self.rows:
            raise DataError(Problem("holds no rows", str(self.path)))
        if self.skipped == self.rows:
            first = "" if self.first_fault is None else f"; the first: {self.first_fault.text}"
            raise DataError(Problem(f"none of its rows can be used{first}", str(self.path)))
        if not self.filled:
            main = [name for name in self.columns if name in forms.MAIN]
            raise DataError(Problem(forms.nothing_held(self.rows, main, self.held), str(self.path)))

    def _schema(self) -> pa.Schema:
        if self.schema is not None:
            return self.schema
        try:
            return pq.read_schema(self.path)
        except (pa.ArrowInvalid, OSError) as error:
            named = Path(self.path).suffix in (".jsonl", ".ndjson", ".json")
            fix = (
                "JSON Lines are read with `data=jsonl`"
                if named
                else "write it anew: it is cut short or another kind of file"
            )
            raise DataError(Problem("is no Parquet file", str(self.path), fix=fix)) from error

    def _read(self) -> Iterator[pa.RecordBatch]:
        if self.source is not None:
            yield from self.source()
            return
        try:
            with pq.ParquetFile(self.path) as file:
                yield from file.iter_batches(BATCH, columns=list(self._wanted(file.schema_arrow)))
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(Problem(f"cannot be read: {_reason(error)}", str(self.path))) from error

    def _wanted(self, schema: pa.Schema) -> Columns:
        """The columns, once it is sure that this file has them."""
        for name in self.columns:
            if name in forms.MAIN and name not in schema.names:
                raise DataError(Problem(f"has no `{name}`; its columns: {forms.listed(schema.names)}", str(self.path)))
        return {name: kind for name, kind in self.columns.items() if name in schema.names}

    def _kind_beside(self, name: str, kind: str, found: pa.DataType) -> str:
        """The kind of a column beside the form. Raises `DataError` for labels and masks of another type."""
        fits = HOLDS[kind](found)
        if not fits and forms.kind_beside(kind, fits) == kind:
            raise DataError(Problem(f"`{name}` holds {found}, not {forms.KINDS[kind]}", str(self.path)))
        return forms.kind_beside(kind, fits)

    def _kind(self, name: str, kind: pa.DataType) -> str:
        """The kind of a column of the form. Raises `DataError` for a type that cannot hold it."""
        if pa.types.is_null(kind):
            raise DataError(Problem(f"`{name}` is null in every row", str(self.path)))
        if name == "input_ids":
            wanted, fits = "ids", HOLDS["ids"](kind)
        elif name == "messages" or (name != "text" and not _is_text(kind)):
            wanted, fits = "turns", kind == pa.json_() or (ragged.is_list(kind) and _is_object(kind.value_type))
        else:
            wanted, fits = "string", _is_text(kind)
        if not fits:
            raise DataError(Problem(f"`{name}` holds {kind}, not {forms.KINDS[wanted]}", str(self.path)))
        return wanted

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The wanted columns as `table.schema` has them, without the rows that cannot be used."""
        numbers = np.arange(self.rows + 1, self.rows + 1 + len(batch))
        keep = self._without_nulls(batch)
        if keep is not None:
            batch, numbers = batch.filter(keep), numbers[keep.to_numpy(zero_copy_only=False)]
        wrong: dict[int, str] = {}
        arrays = [self._column(batch, name, kind, wrong) for name, kind in self.columns.items()]
        made = pa.RecordBatch.from_arrays(arrays, schema=table.schema(self.columns))
        if "input_ids" in self.columns and not _belong_together(made):
            wrong |= {
                row: f" {text}" for row, values in enumerate(made.to_pylist()) if (text := forms.ids_fault(values))
            }
        made = self._without(made, {int(numbers[row]): text for row, text in sorted(wrong.items())}, list(wrong))
        full = {n: _filled(made.column(n), kind) for n, kind in self.columns.items() if n in forms.MAIN}
        self.held.update(name for name, rows in full.items() if rows.any())
        self.filled += int(np.logical_and.reduce(list(full.values())).sum())
        return made

    def _without_nulls(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Which rows have no null in a column of the form; None where all have none."""
        main = [name for name in self.columns if name in forms.MAIN]
        missing = [name for name in main if batch.column(name).null_count]
        if not missing:
            return None
        keep = batch.column(missing[0]).is_valid()
        for name in missing[1:]:
            keep = pc.and_(keep, batch.column(name).is_valid())
        first = missing[0]
        row = self.rows + 1 + pc.index(batch.column(first).is_null(), True).as_py()
        self._leave_out(f"`{first}` is null in row {row}", len(keep) - pc.sum(keep).as_py())
        return keep

    def _without(self, made: pa.RecordBatch, wrong: dict[int, str], rows: list[int]) -> pa.RecordBatch:
        """The batch without its `rows`; `wrong` says what is wrong with them, by their numbers in the file."""
        if not rows:
            return made
        number, text = next(iter(wrong.items()))
        self._leave_out(f"row {number}{text}", len(rows))
        keep = np.ones(len(made), bool)
        keep[rows] = False
        return made.filter(pa.array(keep))

    def _leave_out(self, text: str, rows: int) -> None:
        """Count rows that are left out. Raises `DataError` where none may be."""
        fault = Problem(text, str(self.path), fix=f"leave such rows out with `{SKIP}`")
        if not self.skip:
            raise DataError(fault)
        self.first_fault = self.first_fault or fault
        self.skipped += rows

    def _column(self, batch: pa.RecordBatch, name: str, kind: str, wrong: dict[int, str]) -> pa.Array:
        """One column as `table.schema` has it. What is wrong with conversations is noted in `wrong` by their row."""
        wanted = table.schema({name: kind}).field(0).type
        if name not in batch.schema.names:
            return pa.nulls(len(batch), wanted)
        column = batch.column(name)
        if kind in table.PLAIN or column.type == wanted:
            return column.cast(wanted)
        values = [None if v is None else table.without_nulls(v) for v in column.to_pylist()]
        if kind == "turns":
            found = {row: forms.turn_fault(turns) for row, turns in enumerate(values) if turns is not None}
            wrong |= {row: f", `{name}`: {text}" for row, text in found.items() if text is not None}
        return pa.array([None if v is None else table.dumped(v) for v in values], pa.string()).cast(wanted)


def _belong_together(batch: pa.RecordBatch) -> bool:
    """Whether all ids are ids, all labels labels, and the lists of each row equally long."""
    ids = batch.column("input_ids")
    columns = [batch.column(name) for name in batch.schema.names]
    values = [column.flatten() for column in columns]
    if any(column.null_count or flat.null_count for column, flat in zip(columns, values, strict=True)):
        return False
    sizes = pc.list_value_length(ids)
    if not all(pc.list_value_length(column).equals(sizes) for column in columns):
        return False
    found = dict(zip(batch.schema.names, values, strict=True))
    return all(
        _within(found[name].to_numpy(), other)
        for name, other in (("input_ids", 0), ("labels", IGNORE))
        if name in found
    )


def _within(values: npt.NDArray[np.int64], other: int) -> bool:
    """Whether all values are token ids, or `other`."""
    return bool((((values >= 0) | (values == other)) & (values <= forms.LARGEST)).all())


def _filled(column: pa.Array, kind: str) -> npt.NDArray[np.bool_]:
    """Whether there is anything in each value of a column without nulls."""
    if kind == "ids":
        found = pc.greater(pc.list_value_length(column), 0)
    elif kind == "string":
        found = pc.not_equal(pc.utf8_trim_whitespace(column), "")
    else:
        found = pc.not_equal(column.cast(pa.string()), "[]")
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):  # what pandas writes for categories
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_object(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) or kind == pa.json_())


HOLDS: dict[str, Callable[[pa.DataType], bool]] = {
    "ids": lambda kind: ragged.is_list(kind) and pa.types.is_integer(kind.value_type),
    "mask": lambda kind: (
        ragged.is_list(kind) and (pa.types.is_integer(kind.value_type) or pa.types.is_boolean(kind.value_type))
    ),
    "flag": pa.types.is_boolean,
    "number": lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind),
}
"""Whether an Arrow type can hold a kind."""


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()[0]
    return text[:1].lower() + text[1:]
