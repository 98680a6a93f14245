"""Rows in Arrow files: written whole or not at all, and read memory-mapped, so that they need no memory of their own."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import datasets

log = logging.getLogger("memcfg.data")

Batches = Callable[[], Iterable[pa.RecordBatch]]
"""Makes the rows. Called once more where the file could not be written."""


def cached(path: Path, **about: Any) -> datasets.Dataset | None:
    """The rows of a file; None where there is none, or (with a warning) none that can be read.

    `about`: what `datasets.Dataset` takes beside its table, such as `fingerprint` and `split`."""
    import datasets

    if not path.is_file():
        return None
    try:
        return datasets.Dataset(datasets.table.MemoryMappedTable.from_file(str(path)), **about)
    except (OSError, pa.ArrowInvalid) as error:
        log.warning("the cached rows in %s cannot be read (%s) and are made anew", path, error)
        return None


def made(path: Path | None, schema: pa.Schema, batches: Batches, **about: Any) -> datasets.Dataset:
    """The rows, written to `path` and memory-mapped; in memory without a path, or (with a warning) where it cannot be
    written. An error that `batches` raises leaves no file behind and passes through."""
    import datasets

    if path is not None:
        try:
            _write(path, schema, batches())
            return datasets.Dataset(datasets.table.MemoryMappedTable.from_file(str(path)), **about)
        except OSError as error:
            log.warning("%s cannot be written (%s): the rows are kept in memory", path.parent, error.strerror or error)
    return datasets.Dataset(pa.Table.from_batches(batches(), schema), **about)


def _write(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Beside the destination, then renamed over it: several processes may write the same rows at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
