"""Which rows make which optimizer step. The loader yields whole steps: lists of micro-batches.

The order depends on the seed and the epoch alone, and the place in it is (epoch, position): a loader that is given that
pair continues exactly there. An epoch's last step holds the rows that are left (fewer than batch size x accumulation); as
a step's loss is divided by what it counts, it is no less right than the others, and no row is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from memcfg.batch import IGNORE

if TYPE_CHECKING:
    from memcfg.batch import Batch, Documents, Layout

Collator = Callable[[list[dict[str, Any]]], "Documents"]


@dataclass(frozen=True)
class MicroBatches:
    """Rows made into micro-batches of at most `batch_size` rows, dealt to `world` ranks in turn.

    A rank that would go without in the last round gets another's micro-batch with every label masked: all ranks run the
    same number of forwards, and what is counted stays right."""

    rows: Sequence[Any]
    collator: Collator
    layout: Layout
    batch_size: int
    rank: int = 0
    world: int = 1

    def of(self, indices: Sequence[int]) -> Iterator[Batch]:
        """This rank's micro-batches of these rows."""
        chunks = [indices[i : i + self.batch_size] for i in range(0, len(indices), self.batch_size)]
        for start in range(0, len(chunks), self.world):
            turn = chunks[start : start + self.world]
            batch = self._make(turn[min(self.rank, len(turn) - 1)])
            yield batch if self.rank < len(turn) else blank(batch)

    def _make(self, indices: Sequence[int]) -> Batch:
        return self.layout(self.collator([self.rows[int(i)] for i in indices]))


class StepLoader:
    """Optimizer steps without end. Iterating continues from `state_dict()` and moves it.

    It has no length on purpose: what `transformers.Trainer` takes for one epoch of unknown length lasts all of training,
    so that it neither shuffles nor skips rows itself."""

    def __init__(self, batches: MicroBatches, *, accumulation: int, seed: int) -> None:
        self.batches, self.seed = batches, seed
        self.rows_per_step = batches.batch_size * accumulation * batches.world
        self.epoch = 0
        self.position = 0
        """Index of the next step within the epoch."""
        self._order: tuple[int, list[int]] | None = None

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.batches.rows) // self.rows_per_step)

    def order(self, epoch: int) -> list[int]:
        """The indices of all rows in the order of this epoch."""
        if self._order is None or self._order[0] != epoch:
            generator = torch.Generator().manual_seed((self.seed * 2**20 + epoch) % 2**63)
            self._order = (epoch, torch.randperm(len(self.batches.rows), generator=generator).tolist())
        return self._order[1]

    def at(self, epoch: int, position: int) -> list[Batch]:
        """The micro-batches of one step, wherever the loader is."""
        first = position * self.rows_per_step
        return list(self.batches.of(self.order(epoch)[first : first + self.rows_per_step]))

    def __iter__(self) -> Iterator[list[Batch]]:
        while True:
            here = (self.epoch, self.position)
            last = self.position + 1 >= self.steps_per_epoch
            self.epoch, self.position = (self.epoch + 1, 0) if last else (self.epoch, self.position + 1)
            yield self.at(*here)

    def epochs(self) -> float:
        """How often the data has been read so far."""
        return self.epoch + self.position / self.steps_per_epoch

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed, "rows": len(self.batches.rows)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue where the state was taken. Raises `ValueError` where it belongs to other data or another seed."""
        for name, mine in (("seed", self.seed), ("rows", len(self.batches.rows))):
            if state[name] != mine:
                raise ValueError(f"the saved place in the data has {name} {state[name]}, this run {mine}")
        self.epoch, self.position = state["epoch"], state["position"]


def blank(batch: Batch) -> Batch:
    """The batch with every label masked: the same work, nothing counted."""
    return replace(batch, labels=torch.full_like(batch.labels, IGNORE))
