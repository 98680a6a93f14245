"""JSON Lines: one object a line, with `text` or with `prompt` and `completion`.

Lines are parsed by Python's own `json`, never by a reader that guesses types: digits and dates stay text, and strings
arrive as they were written. Every fault is reported with the number of the line that has it.
"""

from __future__ import annotations

import difflib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from memcfg import DataError, Problem

VERSION = 1
"""Part of the cache's name: raise it whenever reading changes."""

FORMS = (("text",), ("prompt", "completion"))
BATCH = 10_000
"""Rows in one Arrow record batch."""


def check(path: Path, option: str) -> None:
    """Raise `DataError` unless `path` is a file with something in it."""
    if path.is_dir():
        inside = tuple(sorted(str(p) for p in path.glob("*.jsonl"))[:3])
        raise DataError(
            Problem(f"`{path}` is a folder, not a file", option, nearest=tuple(f"{option}={p}" for p in inside))
        )
    if not path.exists():
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = tuple(str(path.with_name(n)) for n in difflib.get_close_matches(path.name, names, n=2))
        raise DataError(Problem(f"no such file: `{path}` (in `{Path.cwd()}`)", option, nearest=near))
    if path.stat().st_size == 0:
        raise DataError(Problem(f"`{path}` is empty", option))


@dataclass
class Reader:
    """Reads one file. `form`: the columns to read, found by `schema` where not given. `rows`: how many were read, `filled`:
    how many of them are not empty. `nulls`: for each column the lines that have null there."""

    path: Path
    form: tuple[str, ...] = ()
    rows: int = 0
    filled: int = 0
    nulls: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches of string columns. Raises `DataError` at the first bad line, or at the end for the file."""
        try:
            with self.path.open("rb") as file:
                yield from self._batches(file)
        except OSError as error:
            raise DataError(Problem(f"cannot be read: {error.strerror or error}", str(self.path))) from error
        self._finish()

    def schema(self) -> pa.Schema:
        """The columns, found by looking at the first row."""
        with self.path.open("rb") as file:
            for number, line in _lines(file):
                self._form(number, self._object(number, line))
                return pa.schema([(name, pa.string()) for name in self.form])
        raise DataError(Problem("holds no rows, only blank lines", str(self.path)))

    def _batches(self, file: BinaryIO) -> Iterator[pa.RecordBatch]:
        columns: list[list[str]] = [[] for _ in self.form]
        for number, line in _lines(file):
            values = self._values(number, self._object(number, line))
            self.rows += 1
            self.filled += values is not None and all(v.strip() for v in values)
            for column, value in zip(columns, values or (), strict=False):
                column.append(value)
            if len(columns[0]) == BATCH:
                yield self._batch(number, columns)
                columns = [[] for _ in self.form]
        if columns[0]:
            yield self._batch(number, columns)

    def _object(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except UnicodeDecodeError as error:
            raise self._fault(number, f"is not UTF-8 (byte {error.start + 1})") from error
        except (ValueError, RecursionError) as error:
            raise self._fault(number, f"is not JSON: {_reason(error)}") from error
        if not isinstance(row, dict):
            hint = "; a JSON array must be rewritten with one object a line" if isinstance(row, list) else ""
            raise self._fault(number, f"is {_kind(row)}, not an object{hint}")
        return row

    def _form(self, number: int, row: dict[str, Any]) -> None:
        there = [form for form in FORMS if any(name in row for name in form)]
        if len(there) > 1:
            raise self._fault(number, "has both `text` and `prompt`/`completion`: a file has one form or the other")
        if not there:
            raise self._fault(number, f"has neither `text` nor `prompt` and `completion`; its columns: {_names(row)}")
        self.form = there[0]

    def _values(self, number: int, row: dict[str, Any]) -> list[str] | None:
        """The row's strings in the order of the form; None for a row with a null, which is reported at the end."""
        if any(name in row for form in FORMS if form != self.form for name in form):
            raise self._fault(number, "has both `text` and `prompt`/`completion`: a file has one form or the other")
        for name in self.form:
            if name not in row:
                raise self._fault(number, f"has no `{name}`; its columns: {_names(row)}")
            if row[name] is None:
                self.nulls[name].append(number)
            elif not isinstance(row[name], str):
                raise self._fault(number, f"`{name}` is {_kind(row[name])}, not a string")
        values = [row[name] for name in self.form]
        return None if None in values else values

    def _batch(self, number: int, columns: list[list[str]]) -> pa.RecordBatch:
        try:
            return pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], list(self.form))
        except UnicodeEncodeError as error:
            first = number - len(columns[0]) + 1
            raise DataError(
                Problem(f"a string between lines {first} and {number} holds half of a surrogate pair", str(self.path))
            ) from error

    def _finish(self) -> None:
        for name, lines in self.nulls.items():
            if lines and len(lines) == self.rows:
                raise DataError(Problem(f"`{name}` is null in every row", str(self.path)))
            if lines:
                text = f"`{name}` is null in {len(lines)} of {self.rows} rows, first on line {lines[0]}"
                raise DataError(Problem(text, str(self.path), fix="remove those rows, or write their text"))
        if not self.filled:
            names = " or ".join(f"`{name}`" for name in self.form)
            raise DataError(Problem(f"all {self.rows} rows are empty: no row has any {names}", str(self.path)))

    def _fault(self, number: int, text: str) -> DataError:
        return DataError(Problem(f"line {number} {text}", str(self.path)))


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers. A byte order mark is no part of the first."""
    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.isspace() and line:
            yield number, line


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[0].lower()}{error.msg[1:]} at column {error.colno}"
    return str(error)


def _names(row: dict[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in row) or "none"


def _kind(value: Any) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return "null" if value is None else kinds[type(value)]
