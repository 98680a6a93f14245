"""Rows in Arrow files: written whole or not at all, and read memory-mapped, so that they need no memory of their own.

They lie in the user's cache folder, which `MEMCFG_CACHE` names (see `folder`). Of several processes that want the same rows
one makes them, the others wait and read. When the folder outgrows `MEMCFG_CACHE_GIB` (default 100), what was not read for
the longest time is removed.
"""

from __future__ import annotations

import getpass
import hashlib
import logging
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import datasets

log = logging.getLogger("memcfg.data")

Batches = Callable[[], Iterable[pa.RecordBatch]]
"""Makes the rows. Called once more where the file could not be written."""


LIMIT_GIB = 100.0
"""How large the cache folder may grow where `MEMCFG_CACHE_GIB` does not say."""
IN_USE = 3600.0
"""Seconds since a file was last opened for which it is taken to be in use, and stays."""


def folder() -> Path:
    """The cache folder, which need not exist yet: `MEMCFG_CACHE`, or `memcfg` under `XDG_CACHE_HOME`, or in the platform's
    own place."""
    if named := os.environ.get("MEMCFG_CACHE"):
        return Path(named).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "memcfg"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "memcfg"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "memcfg"
    return Path.home() / ".cache" / "memcfg"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the right to make `path`: other processes of this host that want to make it wait here."""
    from filelock import FileLock

    name = hashlib.blake2b(str(path).encode(), digest_size=12).hexdigest()
    lock = FileLock(Path(tempfile.gettempdir()) / f"memcfg-{getpass.getuser()}-{name}.lock")
    try:
        lock.acquire()
    except OSError:  # nowhere to lock: rows are then made twice, and still written whole
        yield
        return
    try:
        yield
    finally:
        lock.release()


def prune(limit: float | None = None) -> int:
    """Remove what was not read for the longest time until the folder holds at most `limit` bytes. Returns bytes removed."""
    allowed = limit if limit is not None else float(os.environ.get("MEMCFG_CACHE_GIB", LIMIT_GIB)) * 2**30
    found = [(path, path.stat()) for path in folder().glob("**/*.arrow") if path.is_file()]
    total, removed = sum(state.st_size for _, state in found), 0
    for path, state in sorted(found, key=lambda item: item[1].st_mtime):
        if total - removed <= allowed or time.time() - state.st_mtime < IN_USE:
            break
        with suppress(OSError):
            path.unlink()
            removed += state.st_size
    return removed


def cached(path: Path, **about: Any) -> datasets.Dataset | None:
    """The rows of a file; None where there is none, or (with a warning) none that can be read.

    `about`: what `datasets.Dataset` takes beside its table, such as `fingerprint` and `split`."""
    import datasets

    if not path.is_file():
        return None
    try:
        rows = datasets.Dataset(datasets.table.MemoryMappedTable.from_file(str(path)), **about)
        with suppress(OSError):
            os.utime(path)
        return rows
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
            with suppress(OSError, ValueError):
                prune()
            return datasets.Dataset(datasets.table.MemoryMappedTable.from_file(str(path)), **about)
        except OSError as error:
            log.warning("%s cannot be written (%s): the rows are kept in memory", path.parent, error.strerror or error)
    return datasets.Dataset(pa.Table.from_batches(batches(), schema), **about)


def kept(path: Path, make: Callable[[Path | None], datasets.Dataset]) -> datasets.Dataset:
    """What `make` writes to `path` or finds there, one process at a time; made in memory (`None`, with a warning) where
    `path` cannot be written."""
    with locked(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = make(path)
        except OSError as error:
            log.warning("%s cannot be written (%s): the rows are kept in memory", path.parent, error.strerror or error)
            return make(None)
        with suppress(OSError, ValueError):
            for file in rows.cache_files:
                os.utime(file["filename"])
            prune()
        return rows


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
