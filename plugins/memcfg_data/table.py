"""Rows as Arrow record batches, with nested values as JSON text; and the way back for rows that have lain in structs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memcfg import DataError, Problem
from memcfg_data.forms import Columns, FormError, columns_of, difference, fault

if TYPE_CHECKING:
    import datasets

PLAIN = {
    "string": pa.string(), "ids": pa.list_(pa.int64()), "mask": pa.list_(pa.bool_()), "flag": pa.bool_(),
    "number": pa.float64(),
}  # fmt: skip
"""Arrow types by kind. All other kinds are JSON."""


def schema(columns: Columns) -> pa.Schema:
    """The Arrow schema of these columns."""
    return pa.schema([(name, PLAIN.get(kind) or pa.json_()) for name, kind in columns.items()])


def batch(rows: Sequence[dict[str, Any]], columns: Columns) -> pa.RecordBatch:
    """Rows of plain Python values as a record batch. Raises `UnicodeEncodeError` for half of a surrogate pair."""
    kinds = schema(columns)
    arrays = []
    for name, kind in columns.items():
        values = [row.get(name) for row in rows]
        if kind == "mask":
            values = [None if v is None else list(map(bool, v)) for v in values]
        if kind in PLAIN:
            arrays.append(pa.array(values, PLAIN[kind]))
        else:
            arrays.append(pa.array([None if v is None else dumped(v) for v in values], pa.string()).cast(pa.json_()))
    return pa.RecordBatch.from_arrays(arrays, schema=kinds)


def loaded(column: pa.Array) -> list[Any]:
    """The plain Python values of a column that `batch` or a reader made."""
    if column.type == pa.json_():
        return [None if text is None else json.loads(text) for text in column.cast(pa.string()).to_pylist()]
    return list(column.to_pylist())


def dumped(value: Any) -> str:
    """JSON text of a value, as it will be read back. What JSON does not know, such as a date, becomes text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def dataset(rows: Sequence[dict[str, Any]]) -> datasets.Dataset:
    """Rows as a data set. Each object keeps the keys that it has: none is added, and no null is lost. Raises `DataError`
    for a row that has no form (see `memcfg_data.forms`), or another than the first."""
    import datasets

    if not rows:
        raise DataError(Problem("there are no rows"))
    columns: dict[str, str] = {}
    for number, row in enumerate(rows):
        try:
            found = columns_of(row)
        except FormError as error:
            raise DataError(Problem(f"row {number} {error}")) from error
        wrong = difference(columns, found) if columns else None
        if wrong is None:
            columns = found | columns
            wrong = next((f"`{n}` {f}" for n in found if row[n] is not None and (f := fault(columns, n, row[n]))), None)
        if wrong is not None:
            raise DataError(Problem(f"row {number}: {wrong}"))
    return datasets.Dataset(pa.Table.from_batches([batch(rows, columns)]))


def encodable(row: dict[str, Any]) -> bool:
    """Whether every string in a row is whole text."""
    try:
        dumped(row).encode()
    except UnicodeEncodeError:
        return False
    return True


def without_nulls(value: Any) -> Any:
    """The value without the keys that hold null: what Arrow added to objects that shared a column with others."""
    if isinstance(value, dict):
        return {name: without_nulls(v) for name, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value
