"""Which rows make which optimizer step. The loader yields whole steps: lists of micro-batches.

The order depends on the seed and the epoch alone, and the place in it is (epoch, position): a loader that is given that
pair continues exactly there. An epoch's last step holds the rows that are left (fewer than batch size x accumulation); as
a step's loss is divided by what it counts, it is no less right than the others, and no row is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from memcfg.batch import IGNORE, Source
from memcfg.engine.layout import laid

if TYPE_CHECKING:
    from memcfg.batch import Batch, Documents, Grouping, Layout
    from memcfg.engine.build import Run

T = TypeVar("T")

Collator = Callable[[list[dict[str, Any]]], "Documents"]


@dataclass(frozen=True)
class MicroBatches:
    """Rows made into micro-batches of at most `batch_size` rows, or of those that `grouping` puts together, dealt to
    `world` ranks in turn.

    A rank that would go without in the last round gets another's micro-batch with every label masked: all ranks run the
    same number of forwards, and what is counted stays right."""

    rows: Sequence[Any]
    collator: Collator
    layout: Layout
    batch_size: int
    rank: int = 0
    world: int = 1
    grouping: Grouping | None = None

    def of(self, indices: Sequence[int]) -> Iterator[Batch]:
        """This rank's micro-batches of these rows."""
        return self.dealt(self.groups(indices))

    def groups(self, indices: Sequence[int]) -> list[Sequence[int]]:
        """The rows of each micro-batch."""
        return list(parts(indices, self.batch_size)) if self.grouping is None else self.grouping(indices, self.rows)

    def dealt(self, groups: Sequence[Sequence[int]]) -> Iterator[Batch]:
        """This rank's share of these micro-batches."""
        turns = mine(groups, self.rank, self.world)
        return (
            self.made(Source([self.rows[int(i)] for i in group], [int(i) for i in group], counted))
            for group, counted in turns
        )

    def made(self, source: Source) -> Batch:
        """The micro-batch of some rows; with every label masked if it is not to count."""
        batch = replace(laid(self.layout, self.collator(list(source.rows))), source=source)
        return batch if source.counted else blank(batch)

    def halves(self, batch: Batch) -> tuple[Batch, Batch] | None:
        """Two micro-batches with the rows of one; None where it has a single row, or where its rows are not known."""
        source = batch.source
        if source is None or len(source.rows) < 2:
            return None
        cut = -(-len(source.rows) // 2)
        first, second = (
            self.made(Source(source.rows[part], source.numbers[part], source.counted))
            for part in (slice(cut), slice(cut, None))
        )
        return first, second


def shuffled(count: int, seed: int, epoch: int) -> list[int]:
    """The indices of `count` rows in the order of an epoch, which these three numbers alone decide."""
    generator = torch.Generator().manual_seed((seed * 2**20 + epoch) % 2**63)
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order


def parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`size` items at a time."""
    return (items[i : i + size] for i in range(0, len(items), size))


def mine(groups: Sequence[T], rank: int, world: int) -> Iterator[tuple[T, bool]]:
    """Every `world`-th group, and whether it counts: a rank without one in the last round repeats another's, uncounted."""
    for turn in parts(groups, world):
        yield turn[min(rank, len(turn) - 1)], rank < len(turn)


class Loader(Protocol):
    """Optimizer steps without end, and the place among them. Iterating continues from `state_dict()` and moves it."""

    epoch: int
    position: int
    """Index of the next step within the epoch."""

    def __iter__(self) -> Iterator[list[Batch]]: ...

    def at(self, epoch: int, position: int) -> list[Batch]:
        """The micro-batches of one step; of a stream the next one only."""
        ...

    def epochs(self) -> float:
        """How often the data has been read so far."""
        ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def loader_of(run: Run, batches: MicroBatches) -> Loader:
    """The loader of a run's training rows, which are held or come one after another."""
    from memcfg.engine.streamed import StreamLoader

    about = {"accumulation": run.plan["run.accumulation"], "seed": run.plan["run.seed"]}
    return (
        StepLoader(batches, **about) if hasattr(batches.rows, "__len__") else StreamLoader(batches, run.ledger, **about)
    )


class StepLoader:
    """Optimizer steps without end. Iterating continues from `state_dict()` and moves it.

    It has no length on purpose: what `transformers.Trainer` takes for one epoch of unknown length lasts all of training,
    so that it neither shuffles nor skips rows itself."""

    def __init__(self, batches: MicroBatches, *, accumulation: int, seed: int) -> None:
        self.batches, self.seed = batches, seed
        self.groups_per_step = accumulation * batches.world
        self.epoch = 0
        self.position = 0
        """Index of the next step within the epoch."""
        self._groups: tuple[int, list[Sequence[int]]] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Steps in the epoch that the loader is in."""
        return -(-len(self.groups(self.epoch)) // self.groups_per_step)

    def order(self, epoch: int) -> list[int]:
        """The indices of all rows in the order of this epoch."""
        return shuffled(len(self.batches.rows), self.seed, epoch)

    def groups(self, epoch: int) -> list[Sequence[int]]:
        """The rows of each micro-batch of this epoch."""
        if self._groups is None or self._groups[0] != epoch:
            self._groups = (epoch, self.batches.groups(self.order(epoch)))
        return self._groups[1]

    def at(self, epoch: int, position: int) -> list[Batch]:
        """The micro-batches of one step, wherever the loader is."""
        first = position * self.groups_per_step
        return list(self.batches.dealt(self.groups(epoch)[first : first + self.groups_per_step]))

    def __iter__(self) -> Iterator[list[Batch]]:
        while True:
            here = (self.epoch, self.position)
            last = self.position + 1 >= self.steps_per_epoch
            step = self.at(*here)
            self.epoch, self.position = (self.epoch + 1, 0) if last else (self.epoch, self.position + 1)
            yield step

    def epochs(self) -> float:
        """How often the data has been read so far."""
        return self.epoch + self.position / self.steps_per_epoch

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed, "rows": len(self.batches.rows)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken. Raises `ValueError` where it belongs to other data or another seed."""
        for name, mine in (("seed", self.seed), ("rows", len(self.batches.rows))):
            if state[name] != mine:
                raise ValueError(f"the saved place in the data has {name} {state[name]}, this run {mine}")
        self.epoch, self.position = state["epoch"], state["position"]


def blank(batch: Batch) -> Batch:
    """The batch with every label masked: the same work, nothing counted."""
    return replace(batch, labels=torch.full_like(batch.labels, IGNORE))
