"""Tables that fit: side by side where the terminal is wide enough, else a paragraph for each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memcfg.report.words import width, wrapped

if TYPE_CHECKING:
    from rich.table import Table

NARROW: Final = 60
"""Columns below which a table is no longer one."""


@dataclass(frozen=True)
class Column:
    """`most`: columns it may take; `ratio`: its share of what is left; `right`: numbers."""

    title: str
    most: int | None = None
    ratio: int | None = None
    right: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[str | Table]:
    """What to print for rows of as many cells as there are columns. Cells that are too long are folded."""
    if width() < NARROW:
        return list(_stacked(columns, list(rows)))
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    for column in columns:
        made.add_column(
            column.title, max_width=column.most, ratio=column.ratio, overflow="fold", justify="right" if column.right else "left",
        )  # fmt: skip
    for row in rows:
        made.add_row(*row)
    return [made]


def _stacked(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first cell, then the others below it, each with its title."""
    for row in rows:
        yield from wrapped(row[0], "  ", first="")
        for column, cell in zip(columns[1:], row[1:], strict=True):
            if cell:
                yield from wrapped(f"{column.title}: {cell}", "    ", first="  ")
