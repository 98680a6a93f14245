"""Loads the rows of `data.source`."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow as pa
from tqdm import tqdm

from memcfg import DataError, Plan, Problem, arrowfile, hookimpl
from memcfg_data import files, forms, held, holdout, hub, jsonl, preferences, reading, stdlib, stream, table, tasks

if TYPE_CHECKING:
    from memcfg.engine.ledger import Ledger

log = logging.getLogger("memcfg.data")

PAIR = pa.schema([("name", pa.string()), ("prompt", pa.string()), ("completion", pa.string())])
PREFERENCE = pa.schema([(name, pa.string()) for name in ("name", "prompt", "chosen", "rejected")])
TASK = pa.schema([(name, pa.string()) for name in ("name", "prompt", "wanted")])
COMPARING = ("dpo", "kto", "reward")
"""Trainers that learn from pairs of completions: the standard library gives them such pairs."""
SAMPLING = ("grpo", "rloo", "online_dpo")
"""Trainers that learn from completions of their own: they get prompts whose completions can be judged by counting."""
FEWEST_PAIRS = 200
"""A library that yields fewer pairs than this is not really there."""


@hookimpl
def memcfg_load_dataset(plan: Plan, split: str, ledger: Ledger) -> datasets.Dataset | datasets.IterableDataset | None:
    """The rows of `split`, or None where there are no evaluation rows. Raises `DataError`.

    Under `data.streaming` training rows are a stream; evaluation rows, which are read again and again, never are."""
    rows = SOURCES[plan["data.source"]](plan, split, ledger)
    limit = plan.get("data.limit")
    if rows is None or split == "eval" or limit is None:
        return rows
    if isinstance(rows, datasets.IterableDataset):
        return rows.take(limit)
    return rows if limit >= len(rows) else rows.select(range(limit))


# -------------------------------------------------------------------------------------------- the standard library


def _stdlib(plan: Plan, part: str, ledger: Ledger) -> datasets.Dataset | datasets.IterableDataset | None:
    rows, trainer = stdlib_rows(), plan.get("trainer.name")
    if trainer in COMPARING:
        rows = preference_rows(rows)
    elif trainer in SAMPLING:
        rows = task_rows(rows)
    wanted = min(plan.get("data.eval_rows") or 0, len(rows) // 8)
    chosen = _part(rows.remove_columns("name"), rows["name"][:], wanted, part)
    return chosen.to_iterable_dataset() if _streams(plan, part) and chosen is not None else chosen


def stdlib_rows() -> datasets.Dataset:
    """All pairs of this Python's library, from the cache after the first time; the shipped few where it has no source."""
    folder = stdlib.root()
    place = hashlib.blake2b(str(folder).encode(), digest_size=4).hexdigest()
    version = ".".join(map(str, sys.version_info[:3]))
    path = arrowfile.folder() / f"stdlib-{version}-{place}-v{stdlib.VERSION}.arrow"
    with arrowfile.locked(path):
        if (cached := arrowfile.cached(path, fingerprint=path.stem)) is not None:
            return cached
        found = stdlib.ordered(_read(folder))
        if len(found) >= FEWEST_PAIRS:
            return arrowfile.made(path, PAIR, lambda: [_pairs(found)], fingerprint=path.stem)
    shipped = _shipped()
    log.warning(
        "the standard library's source cannot be read in %s: training on the %d pairs shipped with memcfg instead",
        folder, len(shipped),
    )  # fmt: skip
    return datasets.Dataset(pa.Table.from_batches([_pairs(shipped)]))


def preference_rows(rows: datasets.Dataset) -> datasets.Dataset:
    """The preference pairs that follow from the library's pairs. Raises `DataError` where none do."""

    def found() -> Sequence[Any]:
        pairs = preferences.preferences(stdlib.Pair(**row) for row in rows)
        if not pairs:
            raise DataError(Problem("no preference pairs can be made without the library's source", "data.source"))
        return pairs

    return _derived(rows, f"preferences-{rows._fingerprint}-v{preferences.VERSION}", PREFERENCE, found)


def task_rows(rows: datasets.Dataset) -> datasets.Dataset:
    """Prompts for the modules that the library's pairs name."""
    name = f"tasks-{rows._fingerprint}-v{tasks.VERSION}"
    return _derived(rows, name, TASK, lambda: tasks.tasks(rows["name"][:]))


def _derived(
    rows: datasets.Dataset, name: str, schema: pa.Schema, find: Callable[[], Sequence[Any]]
) -> datasets.Dataset:
    """What `find` makes of the library's rows, kept in the cache under `name` where those are."""

    def made(path: Path | None) -> datasets.Dataset:
        found = find()
        return arrowfile.made(path, schema, lambda: [_records(found, schema)], fingerprint=name)

    if not rows.cache_files:
        return made(None)
    path = arrowfile.folder() / f"{name}.arrow"
    with arrowfile.locked(path):
        return arrowfile.cached(path, fingerprint=name) or made(path)


def _read(folder: Path) -> Iterator[stdlib.Pair]:
    files = stdlib.files(folder)
    for file in tqdm(
        files, desc="reading the standard library (once)", unit="file", leave=False, disable=None, delay=0.5
    ):
        yield from stdlib.pairs(file, folder)


def _pairs(found: list[stdlib.Pair]) -> pa.RecordBatch:
    return _records(found, PAIR)


def _records(found: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Objects with a text for each name of the schema."""
    columns = [[getattr(one, name) for one in found] for name in schema.names]
    return pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], schema=schema)


def _shipped() -> list[stdlib.Pair]:
    reader = jsonl.Reader(Path(str(resources.files("memcfg_data") / "assets" / "fallback.jsonl")))
    return [
        stdlib.Pair(row["prompt"], row["prompt"] + "\n\n", row["completion"])
        for batch in reader.batches()
        for row in batch.to_pylist()
    ]


# ---------------------------------------------------------------------------------------------------- files and hub


def _files(plan: Plan, part: str, ledger: Ledger) -> datasets.Dataset | datasets.IterableDataset | None:
    """Files of rows: those of `data.eval_path`, or some of `data.path` held out, or all of them."""
    if part == "eval" and plan.get("data.eval_path") is not None:
        return _counted(file_rows(plan, plan["data.eval_path"], "data.eval_path"), ledger)
    if part == "eval" and not plan.get("data.eval_rows"):
        return None
    if plan.get("data.path") is None:
        raise DataError(Problem("no file was named", "data.path", fix="data.path=FILE"))
    if _streams(plan, part):
        source = plan["data.source"]
        return stream.rows_of(files.found(plan["data.path"], "data.path", source), reading.maker(plan), ledger)
    found = file_rows(plan, plan["data.path"], "data.path")
    return _divided(plan, _counted(found, ledger, part), part)


def file_rows(plan: Plan, name: str, option: str) -> held.Held:
    """All rows of the files that `name` means."""
    source = plan["data.source"]
    return held.rows_of(files.found(name, option, source), reading.maker(plan), source, *reading.depends_on(plan))


def _hub(plan: Plan, part: str, ledger: Ledger) -> datasets.Dataset | datasets.IterableDataset | None:
    """A data set of the hub: the split that is named, or rows of the training split held out."""
    named = plan.get("data.eval_split")
    if part == "eval" and named is None and not plan.get("data.eval_rows"):
        return None
    streams = _streams(plan, part)
    rows = hub.load(plan, named if part == "eval" and named else plan["data.split"], stream=streams)
    if streams:
        return hub.formed(rows, plan)
    found = _counted(hub.held_rows(rows, plan), ledger, part)
    return found if named is not None else _divided(plan, found, part)


def _streams(plan: Plan, part: str) -> bool:
    return part == "train" and bool(plan.get("data.streaming"))


def _counted(found: held.Held, ledger: Ledger, part: str = "train") -> datasets.Dataset:
    """The rows; those that could not be read are counted, once for all parts of one file."""
    if found.skipped and part == "train":
        told = "1 row" if found.skipped == 1 else f"{found.skipped} rows"
        log.warning("left out %s that could not be read; the first: %s", told, found.fault)
        ledger.add(rows_in=found.skipped)
        ledger.drop(held.UNREADABLE, rows=found.skipped, tokens=0)
    return found.rows


def _divided(plan: Plan, rows: datasets.Dataset, part: str) -> datasets.Dataset | None:
    """The rows of one part, where some are held out."""
    wanted = plan.get("data.eval_rows") or 0
    if wanted >= len(rows):
        raise DataError(Problem(f"{wanted} evaluation rows of {len(rows)} leave none to train on", "data.eval_rows"))
    return _part(rows, _names(rows), wanted, part) if wanted else rows


def _names(rows: datasets.Dataset) -> list[str]:
    """What each row is about: everything in its form."""
    main = rows.select_columns([name for name in rows.column_names if name in forms.MAIN])
    return ["\0".join(v if isinstance(v, str) else table.dumped(v) for v in row.values()) for row in main]


def _part(rows: datasets.Dataset, names: list[str], wanted: int, part: str) -> datasets.Dataset | None:
    chosen = holdout.held_out(names, wanted)
    if part == "eval":
        return rows.select(np.flatnonzero(chosen)) if chosen.any() else None
    return rows.select(np.flatnonzero(~chosen)) if chosen.any() else rows


SOURCES: dict[str, Any] = {"stdlib": _stdlib, "jsonl": _files, "parquet": _files, "hub": _hub}
