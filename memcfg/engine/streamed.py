"""Optimizer steps from rows that come one after another and are never all there.

Every rank reads the whole stream and takes its share of each step, so that all end an epoch together. The place in the
data is the stream's own state: what was read and not yet trained on (a packing buffer, rows of the next step) is read
again where training goes on, not stored."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from memcfg.batch import Source
from memcfg.engine.loader import MicroBatches, mine, parts
from memcfg.errors import DataError, Problem

if TYPE_CHECKING:
    from memcfg.batch import Batch
    from memcfg.engine.ledger import Ledger


class StreamLoader:
    """Optimizer steps without end over a `datasets.IterableDataset`, begun anew when it ends.

    Counts that preparing the rows adds to `ledger` are part of the state: reading again counts nothing twice."""

    def __init__(self, batches: MicroBatches, ledger: Ledger, *, accumulation: int, seed: int) -> None:
        self.batches, self.ledger, self.seed = batches, ledger, seed
        self.rows_per_step = batches.batch_size * accumulation * batches.world
        self.epoch = 0
        self.position = 0
        """Index of the next step within the epoch."""
        self._reader: Iterator[Any] | None = None
        self._next: list[Any] | None = None
        self._before: dict[str, Any] = {}
        self._loaded: dict[str, Any] | None = None
        """The place that was loaded, until the first row is read from there."""
        self._length: int | None = None

    def at(self, epoch: int, position: int) -> list[Batch]:
        """The micro-batches of the next step, which stays the next. Raises `ValueError` for any other step."""
        if (epoch, position) != (self.epoch, self.position):
            raise ValueError("of a stream only the next step can be looked at")
        rows = self._peek()
        numbered = list(enumerate(rows, position * self.rows_per_step))
        turns = mine(list(parts(numbered, self.batches.batch_size)), self.batches.rank, self.batches.world)
        return [
            self.batches.made(Source([row for _, row in part], [number for number, _ in part], counted))
            for part, counted in turns
        ]

    def __iter__(self) -> Iterator[list[Batch]]:
        while True:
            self._peek()
            step = self.at(self.epoch, self.position)
            self._next = None
            self.position += 1
            yield step

    def epochs(self) -> float:
        """How often the data has been read so far; within the first time unknown, and given as none."""
        return self.epoch + (self.position / self._length if self._length else 0.0)

    def state_dict(self) -> dict[str, Any]:
        """The place in the stream, and the counts made on the way there."""
        place = self._before if self._next is not None else self._here()
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed, "length": self._length} | place

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken. Raises `ValueError` where it belongs to another seed, or to held rows."""
        if "stream" not in state:
            raise ValueError("the saved place in the data is that of a data set, this run streams its rows")
        if state["seed"] != self.seed:
            raise ValueError(f"the saved place in the data has seed {state['seed']}, this run {self.seed}")
        self.epoch, self.position, self._length = state["epoch"], state["position"], state["length"]
        self._reader = self._next = None
        self.batches.rows.set_epoch(self.epoch)  # type: ignore[attr-defined]
        self.batches.rows.load_state_dict(state["stream"])  # type: ignore[attr-defined]
        self._loaded = {name: state[name] for name in ("stream", "ledger")}

    def _peek(self) -> list[Any]:
        """The rows of the next step."""
        if self._next is None:
            self._before = self._here()
            self._next = self._read()
            if self._loaded is not None:
                self.ledger.load_state_dict(self._loaded["ledger"])
                self._loaded = None
        return self._next

    def _here(self) -> dict[str, Any]:
        if self._loaded is not None:
            return self._loaded
        return {"stream": self.batches.rows.state_dict(), "ledger": self.ledger.state_dict()}  # type: ignore[attr-defined]

    def _read(self) -> list[Any]:
        """The next rows; those of the next epoch where this one is over. Raises `DataError` for a stream without rows."""
        if rows := self._some():
            return rows
        if not self.position:
            reasons = f" ({told})" if (told := self.ledger.told()) else ""
            raise DataError(Problem(f"the stream has no row to train on{reasons}", "data.source"))
        self._length, self.epoch, self.position = self.position, self.epoch + 1, 0
        self._reader = None
        self.batches.rows.set_epoch(self.epoch)  # type: ignore[attr-defined]
        return self._read()

    def _some(self) -> list[Any]:
        if self._reader is None:
            self._reader = iter(self.batches.rows)
        return list(islice(self._reader, self.rows_per_step))
