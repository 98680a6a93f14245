"""Loads the rows of `data.source`."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
from tqdm import tqdm

from memcfg import DataError, Plan, Problem, arrowfile, hookimpl
from memcfg_data import cache, holdout, jsonl, stdlib

log = logging.getLogger("memcfg.data")

PAIR = pa.schema([("name", pa.string()), ("prompt", pa.string()), ("completion", pa.string())])
FEWEST_PAIRS = 200
"""A library that yields fewer pairs than this is not really there."""


@hookimpl
def memcfg_load_dataset(plan: Plan, split: str) -> datasets.Dataset | None:
    """The rows of `split`, or None where there are no evaluation rows. Raises `DataError`."""
    rows = _stdlib(plan, split) if plan["data.source"] == "stdlib" else _jsonl(plan, split)
    limit = plan.get("data.limit")
    if rows is None or split == "eval" or limit is None or limit >= len(rows):
        return rows
    return rows.select(range(limit))


def _stdlib(plan: Plan, part: str) -> datasets.Dataset | None:
    rows = stdlib_rows()
    wanted = min(plan.get("data.eval_rows") or 0, len(rows) // 8)
    return _part(rows.select_columns(["prompt", "completion"]), rows["name"][:], wanted, part)


def stdlib_rows() -> datasets.Dataset:
    """All pairs of this Python's library, from the cache after the first time; the shipped few where it has no source."""
    folder = stdlib.root()
    place = hashlib.blake2b(str(folder).encode(), digest_size=4).hexdigest()
    version = ".".join(map(str, sys.version_info[:3]))
    path = cache.entry(f"stdlib-{version}-{place}-v{stdlib.VERSION}")
    if (cached := arrowfile.cached(path)) is not None:
        return cached
    found = stdlib.ordered(_read(folder))
    if len(found) >= FEWEST_PAIRS:
        return arrowfile.made(path, PAIR, lambda: [_pairs(found)])
    shipped = _shipped()
    log.warning(
        "the standard library's source cannot be read in %s: training on the %d pairs shipped with memcfg instead",
        folder, len(shipped),
    )  # fmt: skip
    return datasets.Dataset(pa.Table.from_batches([_pairs(shipped)]))


def _read(folder: Path) -> Iterator[stdlib.Pair]:
    files = stdlib.files(folder)
    for file in tqdm(
        files, desc="reading the standard library (once)", unit="file", leave=False, disable=None, delay=0.5
    ):
        yield from stdlib.pairs(file, folder)


def _pairs(found: list[stdlib.Pair]) -> pa.RecordBatch:
    columns = [[getattr(pair, name) for pair in found] for name in PAIR.names]
    return pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], schema=PAIR)


def _shipped() -> list[stdlib.Pair]:
    reader = jsonl.Reader(Path(str(resources.files("memcfg_data") / "assets" / "fallback.jsonl")), jsonl.FORMS[1])
    return [
        stdlib.Pair(row["prompt"], row["prompt"] + "\n\n", row["completion"])
        for batch in reader.batches()
        for row in batch.to_pylist()
    ]


def _jsonl(plan: Plan, part: str) -> datasets.Dataset | None:
    wanted = plan.get("data.eval_rows") or 0
    if part == "eval" and plan.get("data.eval_path") is not None:
        return jsonl_rows(plan["data.eval_path"], "data.eval_path")
    if part == "eval" and not wanted:
        return None
    if plan.get("data.path") is None:
        raise DataError(Problem("no file was named", "data.path", fix="data.path=FILE"))
    rows = jsonl_rows(plan["data.path"], "data.path")
    if wanted >= len(rows):
        raise DataError(Problem(f"{wanted} evaluation rows of {len(rows)} leave none to train on", "data.eval_rows"))
    if not wanted:
        return rows
    return _part(rows, ["\0".join(row.values()) for row in rows], wanted, part)


def jsonl_rows(name: str, option: str) -> datasets.Dataset:
    """All rows of a file, from the cache while the file does not change."""
    path = Path(name).expanduser()
    jsonl.check(path, option)
    state = path.stat()
    identity = f"{path.resolve()} {state.st_size} {state.st_mtime_ns} {state.st_ino} v{jsonl.VERSION}"
    entry = cache.entry(f"jsonl-{hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()}")
    if (cached := arrowfile.cached(entry)) is not None:
        return cached
    schema = jsonl.Reader(path).schema()
    return arrowfile.made(entry, schema, lambda: jsonl.Reader(path, tuple(schema.names)).batches())


def _part(rows: datasets.Dataset, names: list[str], wanted: int, part: str) -> datasets.Dataset | None:
    chosen = holdout.held_out(names, wanted)
    if part == "eval":
        return rows.select(np.flatnonzero(chosen)) if chosen.any() else None
    return rows.select(np.flatnonzero(~chosen)) if chosen.any() else rows
