"""Which rows make a micro-batch under a curriculum, and what the live run shows of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memcfg import DataError, Plan, Problem, RunError, hookimpl
from memcfg import rows as prepared
from memcfg.batch import Grouping
from memcfg.engine.evidence import Effective

Ints = npt.NDArray[np.int64]


@hookimpl
def memcfg_grouping(plan: Plan, grouping: Grouping | None) -> Grouping:
    """Rows in order of length. Raises `RunError` where another plugin puts rows together."""
    if grouping is not None:
        text = f"another plugin puts rows together already (`{type(grouping).__name__}`)"
        raise RunError(Problem(text, key="curriculum.by", fix="curriculum.by=none"))
    seen = plan["run.steps"] * plan["run.accumulation"] * plan["run.batch_size"] * plan["world.size"]
    long_first = plan["curriculum.direction"] == "long_first"
    return ByLength(plan["run.batch_size"], plan["curriculum.stages"], plan["curriculum.rows"], long_first, seen)


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """Nothing: the micro-batch that is predicted holds the longest rows only, and under a curriculum there is such a one."""
    return stands_in


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The order, from the groups that the live run makes of its rows."""
    grouping = run.grouping
    if not isinstance(grouping, ByLength) or run.train is None:
        seen = f"rows are put together by {type(grouping).__name__}"
        return [*found, Effective("curriculum.by", "none", seen)]
    sizes = prepared.lengths(run.train)
    groups = grouping(np.arange(len(sizes)), run.train)
    first, last = (sizes[np.asarray(groups[at])].mean() for at in (0, len(groups) - 1))
    seen = (
        f"micro-batches of {len(sizes)} rows, the first of {first:.0f} tokens a row on average, the last of {last:.0f}"
    )
    direction = "long_first" if grouping.long_first else "short_first"
    return [*found, Effective("curriculum.by", "length", seen), Effective("curriculum.direction", direction, seen)]


@dataclass(frozen=True)
class ByLength:
    """Groups of `size` rows. Of every `block` rows of the given order (all where None) those of the shortest class come
    first, then the next: `stages` classes of equal size, within which the order stays. `seen`: rows that the run trains on."""

    size: int
    stages: int
    block: int | None = None
    long_first: bool = False
    seen: int | None = None

    def __call__(self, order: Sequence[int] | Ints, rows: Any) -> list[Sequence[int]]:
        chosen = np.asarray(order, np.int64)
        sizes = prepared.lengths(rows)
        self._refuse_half(len(chosen), rows)
        sorted_rows = [int(row) for block in self._blocks(chosen) for row in self._sorted(block, sizes[block])]
        return [sorted_rows[at : at + self.size] for at in range(0, len(sorted_rows), self.size)]

    def _blocks(self, order: Ints) -> Iterator[Ints]:
        length = self.block or max(1, len(order))
        return (order[at : at + length] for at in range(0, len(order), length))

    def _sorted(self, block: Ints, sizes: Ints) -> Ints:
        rank = np.empty(len(block), np.int64)
        rank[np.argsort(-sizes if self.long_first else sizes, kind="stable")] = np.arange(len(block))
        return block[np.argsort(rank * self.stages // max(1, len(block)), kind="stable")]

    def _refuse_half(self, count: int, rows: Any) -> None:
        """Raise `DataError` where training ends before the first block does: it would see one end of the lengths only."""
        if self.block is None and self.seen is not None and self.seen < count == len(rows):
            text = f"the run sees {self.seen} of {count} rows: in order of length it would see one end only"
            fix = f"curriculum.rows={self.seen}, or a longer `run.steps`"
            raise DataError(Problem(text, key="curriculum.rows", fix=fix))
