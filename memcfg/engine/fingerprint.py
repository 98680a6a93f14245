"""What the training rows are, in a few numbers: a checkpoint remembers them, and is gone on from with the same rows only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from memcfg import rows as counts

if TYPE_CHECKING:
    from memcfg.batch import Batch

LOOKED_AT: Final = 4096
"""Rows whose content is read. Of more rows, that many are taken at even distances, and the length of every one."""


def of(rows: Any, first: Iterable[Batch]) -> dict[str, Any]:
    """Of prepared rows: `rows`, `tokens` and `content`, and of a stream the content of its first step (`first`, looked at
    only there). Plain data; equal for equal rows in any process."""
    return held(rows) if hasattr(rows, "__len__") else {"first_step": begun(first)}


def held(rows: Any) -> dict[str, Any]:
    """Of rows that are all there."""
    lengths = counts.lengths(rows)
    digest = hashlib.blake2b(lengths.astype("<i8").tobytes(), digest_size=16)
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), LOOKED_AT)).astype(np.int64))
    table: pa.Table = rows.with_format("arrow")[chosen.tolist()]
    for name in sorted(table.column_names):
        digest.update(name.encode())
        _add(digest, table.column(name).combine_chunks())
    return {"rows": len(rows), "tokens": int(lengths.sum()), "content": digest.hexdigest()}


def begun(first: Iterable[Batch]) -> str:
    """Of the micro-batches of a stream's first step."""
    digest = hashlib.blake2b(digest_size=16)
    for batch in first:
        for tensor in (batch.input_ids, batch.labels):
            digest.update(str(tuple(tensor.shape)).encode() + tensor.cpu().numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def difference(then: dict[str, Any], now: dict[str, Any]) -> str | None:
    """How the rows differ from what they were, in words; None where they do not."""
    if then == now:
        return None
    if "rows" in then and "rows" in now and (then["rows"], then["tokens"]) != (now["rows"], now["tokens"]):
        was, are = (f"{side['rows']:,} rows of {side['tokens']:,} tokens" for side in (then, now))
        return f"{was} then, {are} now"
    return "their content differs"


def _add(digest: Any, column: Any) -> None:
    """Add the values of a column. Lists are flattened, with their lengths."""
    column = column if isinstance(column, pa.Array) else pa.chunked_array(column).combine_chunks()
    while pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        digest.update(column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False).tobytes())
        column = column.flatten()
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if numeric and not column.null_count:
        digest.update(np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).tobytes())
    else:
        digest.update(repr(column.to_pylist()).encode())
