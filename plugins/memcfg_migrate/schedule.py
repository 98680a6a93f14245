"""How long a run is. Other programs count epochs, memcfg counts steps: the rows of the data are what lies between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Said

COUNTED_AT_MOST: Final = 2**28
"""Bytes of a file whose lines are counted; a larger one would take seconds."""


@dataclass(frozen=True)
class Length:
    """`rows`: what one epoch trains on; None where nobody said. `processes`: over which a step is spread."""

    rows: int | None = None
    processes: int = 1
    rows_from: str = "`--rows`"


@dataclass(frozen=True)
class Steps:
    """Optimizer steps of an epoch and of the run, None where they are not known."""

    epoch: int | None
    total: int | None


def steps(epochs: float, most: int, batch: int, accumulation: int, length: Length) -> Steps:
    """As Transformers counts: the last step of an epoch may be short, and part of an epoch is rounded up."""
    epoch = None
    if length.rows is not None:
        micro_batches = math.ceil(length.rows / (max(batch, 1) * length.processes))
        epoch = max(math.ceil(micro_batches / max(accumulation, 1)), 1)
    if most > 0:
        return Steps(epoch, most)
    return Steps(epoch, None if epoch is None else max(math.ceil(epochs * epoch), 1))


def carry_steps(found: Steps, said: Said, epochs: str, most: str, length: Length, out: Outcome) -> None:
    """Set `run.steps`, or say what is missing to know it."""
    if (said[most] or 0) > 0:
        out.carry("run.steps", said[most], said.text(most))
        if epochs in said:
            out.remark("there", said.text(epochs), f"`{most}` counts and this does not")
    elif said.unread & {epochs, most}:
        out.remark("open", "`run.steps`", f"`{epochs}` and `{most}` could not both be read: append `run.steps=N`")
    elif found.total is not None:
        text = f"{said.text(epochs)}, {length.rows} rows ({length.rows_from})"
        out.carry("run.steps", found.total, text)
    else:
        text = "memcfg counts steps: say how many rows an epoch has with `--rows N`, or append `run.steps=N`"
        out.remark("open", said.text(epochs), text)


def fraction(value: float, total: int | None) -> int | None:
    """Steps that a number stands for: below 1 it is a share of all steps."""
    if value >= 1 or value == 0:
        return int(value)
    return None if total is None else math.ceil(value * total)


def rows_of(path: str, beside: Path) -> int | None:
    """Rows of a local file, if it is there and small enough to be counted."""
    file = next((p for p in (Path(path), beside / path) if p.is_file()), None)
    if file is None:
        return None
    if file.suffix == ".parquet":
        return _parquet_rows(file)
    if file.suffix not in (".jsonl", ".ndjson", ".json") or file.stat().st_size > COUNTED_AT_MOST:
        return None
    with file.open("rb") as stream:
        if stream.read(1) == b"[":
            return None  # one JSON document, not lines
        stream.seek(0)
        return sum(1 for line in stream if line.strip())


def _parquet_rows(file: Path) -> int | None:
    import pyarrow.parquet

    try:
        return int(pyarrow.parquet.read_metadata(file).num_rows)
    except (OSError, ValueError):  # Arrow's own errors are of these kinds
        return None
