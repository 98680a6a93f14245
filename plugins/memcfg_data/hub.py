"""Data sets of the hub by name, and folders that `datasets` saved."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa

from memcfg import DataError, Plan, Problem, arrowfile
from memcfg import hub as network
from memcfg_data import columnar, downloaded, forms, table
from memcfg_data.forms import Columns
from memcfg_data.held import Held


def load(plan: Plan, split: str, *, stream: bool) -> Any:
    """The rows of one split of `data.path`, as `datasets` gives them. Raises `DataError`."""
    name = str(plan["data.path"])
    folder = Path(name).expanduser()
    if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
        return _saved(folder, split, stream)
    if not folder.exists():
        network.reachable()  # where it is not, what follows finds out at once
    with _quiet(), _explained(name, split):
        return datasets.load_dataset(
            name, plan.get("data.config"), split=split, revision=plan.get("data.revision"), streaming=stream
        )


def _saved(folder: Path, split: str, stream: bool) -> Any:
    rows = datasets.load_from_disk(str(folder))
    if isinstance(rows, datasets.DatasetDict):
        if split not in rows:
            raise DataError(_no_split(str(folder), split, list(rows)))
        rows = rows[split]
    return rows.to_iterable_dataset() if stream else rows


def held_rows(rows: datasets.Dataset, plan: Plan) -> Held:
    """Rows of a form. Those that are text already are left where `datasets` keeps them; conversations become JSON, once."""
    columns, reader = _reader(rows, plan)
    names = list(columns)
    plain = all(rows.features[name] == datasets.Value("string") for name in names)
    if plain and not any(rows.data.column(name).null_count for name in names):
        return Held(rows.select_columns(names))
    entry = arrowfile.folder() / f"hub-{_digest(rows, plan)}.arrow"
    with arrowfile.locked(entry):
        cached = arrowfile.cached(entry, fingerprint=entry.stem)
        if cached is not None:
            return Held(cached, skipped=len(rows) - len(cached))
        made = arrowfile.made(entry, table.schema(columns), reader.batches, fingerprint=entry.stem)
    return Held(made, reader.skipped, None if reader.first_fault is None else reader.first_fault.text)


def formed(rows: datasets.IterableDataset, plan: Plan) -> datasets.IterableDataset:
    """A stream of rows of a form, without the columns that do not belong to it and the nulls that structs add."""
    first = next(iter(rows), None)
    if first is None:
        raise DataError(Problem("holds no rows", str(plan["data.path"])))
    only = plan.get("data.columns")
    try:
        columns = forms.columns_of({k: v for k, v in first.items() if only is None or k in only})
    except forms.FormError as error:
        raise DataError(Problem(f"the first row {error}", str(plan["data.path"]))) from error
    return rows.map(lambda row: {name: table.without_nulls(row[name]) for name in columns}, remove_columns=list(first))


def _reader(rows: datasets.Dataset, plan: Plan) -> tuple[Columns, columnar.Reader]:
    """What reads these rows, and the columns that it found."""

    def batches() -> Iterator[pa.RecordBatch]:
        for part in rows.with_format("arrow").iter(columnar.BATCH):
            yield from part.combine_chunks().to_batches()

    reader = columnar.Reader(
        str(plan["data.path"]), only=plan.get("data.columns"), skip=plan.get("data.on_error") == "skip",
        source=batches, schema=rows.data.schema,
    )  # fmt: skip
    reader.columns = reader.find_columns()
    return reader.columns, reader


def _digest(rows: datasets.Dataset, plan: Plan) -> str:
    about = (rows._fingerprint, plan.get("data.columns"), plan.get("data.on_error"), columnar.VERSION)
    return hashlib.blake2b(repr(about).encode(), digest_size=12).hexdigest()


@contextmanager
def _explained(name: str, split: str) -> Iterator[None]:
    """Whatever can go wrong with a name, as one message."""
    try:
        yield
    except (ConnectionError, OSError) as error:
        if isinstance(error, datasets.exceptions.DatasetNotFoundError):
            text = f"the hub has no data set `{name}` that this user may read"
        elif isinstance(error, FileNotFoundError) and not isinstance(error, ConnectionError):
            text = f"`{name}` is neither a folder here nor a data set that can be had: {_line(error)}"
        else:
            raise downloaded.missing(name) from error
        raise DataError(Problem(text, "data.path", fix=downloaded.FIX)) from error
    except ValueError as error:
        raise DataError(Problem(f"`{name}`: {_line(error)}", "data.path", fix=_choice(error, split))) from error


def _choice(error: ValueError, split: str) -> str | None:
    """What to write where the name alone does not say which rows are meant."""
    text = str(error)
    if "onfig" in text:
        return "name one, as in `data.config=NAME`"
    return f"there is no split `{split}`: name one, as in `data.split=NAME`" if "split" in text.lower() else None


def _no_split(name: str, split: str, there: list[str]) -> Problem:
    option = "data.split"
    return Problem(f"`{name}` has no split `{split}`", option, nearest=tuple(f"{option}={s}" for s in there[:3]))


@contextmanager
def _quiet() -> Iterator[None]:
    """`datasets` and the hub's client without their warnings of retries: the error says what happened."""
    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub", "httpx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return text[:1].lower() + text[1:]
