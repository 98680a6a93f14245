"""Steps from a stream: every row once an epoch, begun anew when it ends, and continued exactly where a state was taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import datasets
import pytest
import torch

from memcfg import DataError, rows
from memcfg.batch import Batch, Documents
from memcfg.engine.ledger import Ledger
from memcfg.engine.loader import MicroBatches, StepLoader
from memcfg.engine.streamed import StreamLoader

pytestmark = pytest.mark.torch


def collate(given: list[dict[str, Any]]) -> Documents:
    ids = [torch.tensor(row["input_ids"]) for row in given]
    return Documents(ids, ids, [[i] for i in range(len(ids))])


def layout(documents: Documents) -> Batch:
    ids = torch.stack(documents.input_ids)
    return Batch(ids, ids.clone(), torch.zeros_like(ids), torch.arange(len(ids))[:, None], "padded", [1] * len(ids))


def stream(count: int, ledger: Ledger) -> datasets.IterableDataset:
    """Rows of one token, counted three at a time as they are read."""

    def source() -> Iterator[dict[str, Any]]:
        yield from ({"input_ids": [i]} for i in range(count))

    def counting(table: Any, _: int) -> Any:
        ledger.add(rows_in=len(table))
        return table

    return rows.streamed(datasets.IterableDataset.from_generator(source), counting, size=3)


def loader(count: int, batch: int = 2, accumulation: int = 1, rank: int = 0, world: int = 1) -> StreamLoader:
    ledger = Ledger()
    batches = MicroBatches(stream(count, ledger), collate, layout, batch, rank, world)  # type: ignore[arg-type]
    return StreamLoader(batches, ledger, accumulation=accumulation, seed=0)


def content(step: list[Batch]) -> list[int]:
    return [int(row) for batch in step for row in batch.input_ids[batch.labels != -100]]


def take(steps: StreamLoader, count: int) -> list[list[int]]:
    return [content(step) for step in islice(iter(steps), count)]


def test_an_epoch_holds_every_row_once_and_the_next_begins_anew() -> None:
    steps = loader(5)
    assert take(steps, 7) == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4], [0, 1]]
    assert (steps.epoch, steps.position) == (2, 1)
    assert steps.epochs() == pytest.approx(2 + 1 / 3)


def test_looking_at_the_next_step_does_not_take_it() -> None:
    steps = loader(5)
    assert content(steps.at(0, 0)) == [0, 1] == content(steps.at(0, 0))
    assert take(steps, 2) == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="only the next step"):
        steps.at(0, 0)


@pytest.mark.parametrize("peeked", [False, True])
@pytest.mark.parametrize("taken", range(9))
def test_a_loader_goes_on_where_its_state_was_taken(taken: int, peeked: bool) -> None:
    whole = take(loader(7, accumulation=2), 12)
    steps = loader(7, accumulation=2)
    assert take(steps, taken) == whole[:taken]
    counts = steps.ledger.rows_in
    if peeked:
        steps.at(steps.epoch, steps.position)
    state = json.loads(json.dumps(steps.state_dict()))
    again = loader(7, accumulation=2)
    again.load_state_dict(state)
    assert json.loads(json.dumps(again.state_dict())) == state
    again.at(again.epoch, again.position)
    assert again.ledger.rows_in == counts, "what is read again is not counted again"
    assert take(again, 12 - taken) == whole[taken:]


@pytest.mark.parametrize(("count", "world"), [(5, 2), (7, 3), (1, 2)])
def test_ranks_share_each_step(count: int, world: int) -> None:
    found = [take(loader(count, 1, rank=rank, world=world), 3) for rank in range(world)]
    together = [sorted(row for rank in found for row in rank[step]) for step in range(3)]
    assert together == [sorted(step) for step in take(loader(count, world), 3)]


def test_a_stream_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="the stream has no row to train on"):
        take(loader(0), 1)


def test_a_place_in_held_rows_is_no_place_in_a_stream() -> None:
    held = StepLoader(MicroBatches(range(4), collate, layout, 2), accumulation=1, seed=0)
    with pytest.raises(ValueError, match="this run streams its rows"):
        loader(4).load_state_dict(held.state_dict())
