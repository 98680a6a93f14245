"""Rows that are read while training goes on, and never kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets

from memcfg_data.held import UNREADABLE
from memcfg_data.reading import Make

if TYPE_CHECKING:
    from memcfg.engine.ledger import Ledger


def rows_of(files: Sequence[Path], make: Make, ledger: Ledger) -> datasets.IterableDataset:
    """The rows of some files one after another. Rows that cannot be used are counted in the ledger as they are met."""
    columns = make(files[0], {}).find_columns(whole=False)

    def rows(paths: list[str]) -> Iterator[dict[str, Any]]:
        for path in paths:
            reader, counted = make(Path(path), columns), 0
            for _, row in reader.numbered():
                counted = _count(ledger, reader.skipped, counted)
                yield row
            _count(ledger, reader.skipped, counted)
            reader.finish()

    return datasets.IterableDataset.from_generator(rows, gen_kwargs={"paths": [str(file) for file in files]})


def _count(ledger: Ledger, skipped: int, counted: int) -> int:
    ledger.add(rows_in=skipped - counted)
    ledger.drop(UNREADABLE, rows=skipped - counted, tokens=0)
    return skipped
