"""Rows that were read once are kept in the cache folder and read memory-mapped from there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from tqdm import tqdm

from memcfg import RunError, arrowfile
from memcfg.files import write_atomic
from memcfg_data import files as named
from memcfg_data import table
from memcfg_data.reading import Make, Reader

UNREADABLE = "could not be read"
"""The ledger's reason for rows that `data.on_error=skip` left out."""


@dataclass(frozen=True)
class Held:
    """Rows, how many were left out while reading them, and the first fault among those."""

    rows: datasets.Dataset
    skipped: int = 0
    fault: str | None = None


def rows_of(files: Sequence[Path], make: Make, name: str, *about: object) -> Held:
    """All rows of some files, from the cache while the files do not change. `about`: what else the rows depend on."""
    entry = arrowfile.folder() / f"{name}-{named.identity(files, *about)}.arrow"
    beside = entry.with_suffix(".json")
    with arrowfile.locked(entry):
        cached = arrowfile.cached(entry, fingerprint=entry.stem)
        if cached is not None and (said := _said(beside)) is not None:
            return Held(cached, **said)
        columns = make(files[0], {}).find_columns()
        readers: list[Reader] = []

        def batches() -> Iterator[pa.RecordBatch]:
            readers[:] = []
            with tqdm(desc="reading (once)", unit=" rows", leave=False, disable=None, delay=1) as bar:
                for file in files:
                    readers.append(make(file, columns))
                    for batch in readers[-1].batches():
                        yield batch
                        bar.update(len(batch))
            with suppress(OSError, RunError):
                write_atomic(beside, json.dumps(_account(readers)))

        rows = arrowfile.made(entry, table.schema(columns), batches, fingerprint=entry.stem)
    return Held(rows, **_account(readers))


def _account(readers: Sequence[Reader]) -> dict[str, Any]:
    faults = [f"{r.first_fault.key}: {r.first_fault.text}" for r in readers if r.first_fault is not None]
    return {"skipped": sum(r.skipped for r in readers), "fault": faults[0] if faults else None}


def _said(beside: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        said = json.loads(beside.read_text(encoding="utf-8"))
        return {"skipped": int(said["skipped"]), "fault": said["fault"]}
    return None
