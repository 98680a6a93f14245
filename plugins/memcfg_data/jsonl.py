"""JSON Lines: one object a line, in one of the forms of `memcfg_data.forms`.

Lines are parsed by Python's own `json`, never by a reader that guesses types: digits and dates stay text, and strings
arrive as they were written. Every fault is reported with the number of the line that has it.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from memcfg import DataError, Problem
from memcfg_data import forms, table
from memcfg_data.forms import Columns

VERSION = 6
"""Part of the cache's name: raise it whenever reading changes."""

HALF = "holds half of a surrogate pair, which is no text"
SKIP = "leave such rows out with `data.on_error=skip`"
OTHERS = (
    (b"PAR1", "is Parquet, not JSON Lines", "read it with `data=parquet`"),
    (b"\x1f\x8b", "is compressed, and read as it is", "unpack it with `gunzip`"),
    (b"\xff\xfe", "is UTF-16, and JSON Lines are UTF-8", "write it anew as UTF-8"),
    (b"\xfe\xff", "is UTF-16, and JSON Lines are UTF-8", "write it anew as UTF-8"),
)
"""How files of other kinds begin, what is said of them, and what to do."""
BATCH = 10_000
"""Rows in one Arrow record batch."""


@dataclass
class Reader:
    """Reads one file. `columns`: what to read, found by `find_columns` where not given; `only`: no other columns than
    these are looked at. With `skip` bad lines are counted in `skipped` and left out. `rows`: how many were read, `filled`:
    how many of them are not empty. `held`: columns that were not empty before the first such row. `nulls`: for each column
    the lines that have null there. `first_fault`: the first bad line's."""

    path: Path
    columns: Columns = field(default_factory=dict)
    only: Sequence[str] | None = None
    skip: bool = False
    rows: int = 0
    filled: int = 0
    held: set[str] = field(default_factory=set)
    skipped: int = 0
    nulls: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    first_fault: Problem | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches. Raises `DataError` at the first bad line, or at the end for the file."""
        waiting: list[tuple[int, dict[str, Any]]] = []
        for numbered in self._numbered(alone=False):
            waiting.append(numbered)
            if len(waiting) == BATCH:
                yield self._batch(waiting)
                waiting = []
        if waiting:
            yield self._batch(waiting)
        self.finish()

    def numbered(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Rows with the numbers of their lines, each looked at by itself."""
        return self._numbered(alone=True)

    def _numbered(self, *, alone: bool) -> Iterator[tuple[int, dict[str, Any]]]:
        """`alone`: look for half surrogate pairs in each row, which a batch finds more cheaply in all, and report a null at
        once, not in `finish` with all others."""
        if not self.columns:
            self.columns = self.find_columns()
        try:
            with self.path.open("rb") as file:
                for number, line in _lines(file):
                    if (row := self._row(number, line, alone)) is not None:
                        yield number, row
        except OSError as error:
            raise DataError(Problem(f"cannot be read: {error.strerror or error}", str(self.path))) from error

    def find_columns(self, *, whole: bool = True) -> Columns:
        """The columns, found by looking at the first row (with `skip`: the first that can be read). Of what only some
        conversations have, such as tools, `whole` looks for the first in all lines; without it there is always a column."""
        with self.path.open("rb") as file:
            self._refuse_others(file)
            for number, line in _lines(file):
                try:
                    columns = self._form(number, self._object(number, line))
                except DataError as error:
                    if not self.skip:
                        raise
                    self.first_fault = self.first_fault or error.problems[0]
                    continue
                return columns | self._later(columns, file if whole else None)
        if self.first_fault is not None:
            raise self._nothing_read()
        raise DataError(Problem("holds no rows, only blank lines", str(self.path)))

    def _refuse_others(self, file: BinaryIO) -> None:
        """Raise `DataError` for a file of another kind."""
        begin = file.read(4)
        file.seek(0)
        for mark, text, fix in OTHERS:
            if begin.startswith(mark):
                raise DataError(Problem(text, str(self.path), fix=fix))

    def _later(self, columns: Columns, lines: BinaryIO | None) -> dict[str, str]:
        """Columns of conversations that the first row has not."""
        missing = {f'"{name}"'.encode(): name for name in forms.LATER if name not in columns}
        if "turns" not in columns.values() or not missing:
            return {}
        if lines is None:
            return dict.fromkeys(missing.values(), "json")
        found = {name for line in lines for text, name in missing.items() if text in line}
        return {name: "json" for name in forms.LATER if name in found and (self.only is None or name in self.only)}

    def finish(self) -> None:
        """Raise `DataError` for what only the whole file shows: nulls, or no text at all."""
        for name, lines in self.nulls.items():
            if lines and len(lines) == self.rows:
                raise DataError(Problem(f"`{name}` is null in every row", str(self.path)))
            if lines and not self.skip:
                text = f"`{name}` is null in {len(lines)} of {self.rows} rows, first on line {lines[0]}"
                fix = "remove those rows, write their text, or leave them out with `data.on_error=skip`"
                raise DataError(Problem(text, str(self.path), fix=fix))
        if self.skipped == self.rows:
            raise self._nothing_read()
        if not self.filled:
            raise DataError(Problem(forms.nothing_held(self.rows, self._main(), self.held), str(self.path)))

    def _row(self, number: int, line: bytes, alone: bool) -> dict[str, Any] | None:
        self.rows += 1
        try:
            row = self._checked(number, self._object(number, line))
            if alone and row is not None and not table.encodable(row):
                raise self._fault(number, HALF)
            if alone and row is None:
                null = next(name for name, lines in self.nulls.items() if lines[-1:] == [number])
                raise self._fault(number, f"`{null}` is null", SKIP)
        except DataError as error:
            if not self.skip:
                raise
            self.first_fault = self.first_fault or error.problems[0]
            row = None
        if row is None:
            self.skipped += self.skip
        else:
            main = self._main()
            full = [name for name in main if forms.filled(row[name])]
            self.filled += len(full) == len(main)
            if not self.filled:
                self.held.update(full)
        return row

    def _object(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = _DECODER.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
        except UnicodeDecodeError as error:
            raise self._fault(number, f"is not UTF-8 (byte {error.start + 1})") from error
        except _Ambiguous as error:
            raise self._fault(number, str(error)) from error
        except (ValueError, RecursionError) as error:
            raise self._fault(number, f"is not JSON: {_reason(error)}") from error
        if not isinstance(row, dict):
            hint = "; a JSON array must be rewritten with one object a line" if isinstance(row, list) else ""
            raise self._fault(number, f"is {forms.described(row)}, not an object{hint}")
        if self.only is None:
            return row
        if row and not (wanted := {name: row[name] for name in self.only if name in row}):
            raise self._fault(number, f"has none of `data.columns`; its columns: {forms.listed(row)}")
        return wanted if row else row

    def _form(self, number: int, row: dict[str, Any]) -> dict[str, str]:
        try:
            return forms.columns_of(row)
        except forms.FormError as error:
            raise self._fault(number, str(error)) from error

    def _checked(self, number: int, row: dict[str, Any]) -> dict[str, Any] | None:
        """The row's values; None for a row with a null in a column of its form."""
        main = self._main()
        if stray := [name for name in forms.MAIN if name in row and name not in main]:
            names = forms.listed((*main, *stray))
            raise self._fault(number, f"has {names} together: a file has one form")
        late = (*forms.BESIDE.get(tuple(main), {}), *(forms.LATER if "turns" in self.columns.values() else ()))
        if later := [n for n in late if row.get(n) is not None and n not in self.columns]:
            raise self._fault(number, f"has {forms.listed(later)}, which the first row of all has not")
        found = {name: self._value(number, row, name) for name in self.columns}
        if any(found[name] is None for name in main):
            return None
        if main == ["input_ids"] and (wrong := forms.ids_fault(found)) is not None:
            raise self._fault(number, wrong)
        return found

    def _value(self, number: int, row: dict[str, Any], name: str) -> Any:
        main = name in forms.MAIN
        if name not in row and main:
            raise self._fault(number, f"has no `{name}`; its columns: {forms.listed(row)}")
        value = row.get(name)
        if value is None:
            if main:
                self.nulls[name].append(number)
        elif (wrong := forms.fault(self.columns, name, value)) is not None:
            raise self._fault(number, f"`{name}` {wrong}" if wrong.startswith("is ") else f"`{name}`: {wrong}")
        return value

    def _batch(self, waiting: list[tuple[int, dict[str, Any]]]) -> pa.RecordBatch:
        try:
            return table.batch([row for _, row in waiting], self.columns)
        except UnicodeEncodeError as error:
            kept = [(number, row) for number, row in waiting if table.encodable(row)]
            number = next(number for number, row in waiting if not table.encodable(row))
            fault = self._fault(number, HALF)
            if not self.skip:
                raise fault from error
            self.first_fault = self.first_fault or fault.problems[0]
            self.skipped += len(waiting) - len(kept)
            return table.batch([row for _, row in kept], self.columns)

    def _main(self) -> list[str]:
        return [name for name in self.columns if name in forms.MAIN]

    def _nothing_read(self) -> DataError:
        first = "" if self.first_fault is None else f"; the first: {self.first_fault.text}"
        return DataError(Problem(f"none of its rows can be used{first}", str(self.path)))

    def _fault(self, number: int, text: str, fix: str | None = None) -> DataError:
        return DataError(Problem(f"line {number} {text}", str(self.path), fix=fix))


class _Ambiguous(ValueError):
    """What Python's `json` takes and other readers do not, or take otherwise."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if any(name == other for other, _ in pairs[:at]))
        raise _Ambiguous(f"has `{twice}` twice in one object")
    return row


def _no_number(word: str) -> Any:
    raise _Ambiguous(f"holds `{word}`, which JSON does not know")


def _number(word: str) -> float:
    if math.isinf(number := float(word)):
        raise _Ambiguous(f"holds `{word}`, which is beyond what a number can be")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_number)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers. A byte order mark is no part of the first."""
    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.isspace() and line:
            yield number, line


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[0].lower()}{error.msg[1:].removesuffix(' at')} at column {error.colno}"
    return str(error)
