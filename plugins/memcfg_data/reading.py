"""Reading one file: what a reader is, and which one a plan wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from memcfg import Problem
from memcfg_data import columnar, jsonl
from memcfg_data.forms import Columns

FORMATS = {"jsonl": jsonl, "parquet": columnar}


class Reader(Protocol):
    """What reads one file."""

    columns: Columns
    skipped: int
    first_fault: Problem | None

    def batches(self) -> Iterator[pa.RecordBatch]: ...
    def numbered(self) -> Iterator[tuple[int, dict[str, Any]]]: ...
    def find_columns(self, *, whole: bool = True) -> Columns: ...
    def finish(self) -> None: ...


Make = Callable[[Path, Columns], Reader]
"""A reader of one file, told the columns (none: to find them itself)."""


def maker(plan: Mapping[str, Any]) -> Make:
    """What makes the reader of one file."""
    reader, only = FORMATS[plan["data.source"]].Reader, plan.get("data.columns")
    skip = plan.get("data.on_error") == "skip"
    return lambda path, columns: reader(path, columns, only=only, skip=skip)


def depends_on(plan: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the rows of a file depend on beside the file."""
    return FORMATS[plan["data.source"]].VERSION, plan.get("data.on_error"), plan.get("data.columns")
