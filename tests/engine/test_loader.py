"""Which rows make which step: every row once an epoch, an order known by (epoch, position), nothing left out."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memcfg.batch import Batch, Documents
from memcfg.engine.loader import MicroBatches, StepLoader, blank

pytestmark = pytest.mark.torch


def collate(rows: list[int]) -> Documents:
    ids = [torch.tensor([row]) for row in rows]
    return Documents(ids, ids, [[i] for i in range(len(ids))])


def layout(documents: Documents) -> Batch:
    ids = torch.stack(documents.input_ids)
    return Batch(ids, ids.clone(), torch.zeros_like(ids), torch.arange(len(ids))[:, None], "padded", [1] * len(ids))


def loader(rows: int, batch: int, accumulation: int, seed: int = 0, rank: int = 0, world: int = 1) -> StepLoader:
    return StepLoader(
        MicroBatches(range(rows), collate, layout, batch, rank, world), accumulation=accumulation, seed=seed
    )


def content(step: list[Batch]) -> list[list[int]]:
    return [batch.input_ids[:, 0].tolist() for batch in step]


def read(step: list[Batch]) -> list[int]:
    """The rows of a step that count."""
    return [int(row) for batch in step for row in batch.input_ids[batch.labels != -100]]


sizes = st.tuples(st.integers(1, 40), st.integers(1, 5), st.integers(1, 4), st.integers(0, 3))


@given(sizes)
def test_an_epoch_holds_every_row_once(size: tuple[int, int, int, int]) -> None:
    rows, batch, accumulation, seed = size
    steps = loader(rows, batch, accumulation, seed)
    seen = [row for step in islice(steps, steps.steps_per_epoch) for row in read(step)]
    assert sorted(seen) == list(range(rows))


@given(sizes)
def test_steps_hold_the_rows_that_were_asked_for(size: tuple[int, int, int, int]) -> None:
    rows, batch, accumulation, seed = size
    steps = loader(rows, batch, accumulation, seed)
    for number, step in enumerate(islice(steps, steps.steps_per_epoch), start=1):
        sizes_ = [len(micro) for micro in content(step)]
        whole = number < steps.steps_per_epoch or rows % (batch * accumulation) == 0
        assert sum(sizes_) == (batch * accumulation if whole else rows % (batch * accumulation))
        assert all(n == batch for n in sizes_[:-1])


def test_the_last_step_of_an_epoch_holds_what_is_left() -> None:
    assert [len(read(step)) for step in islice(loader(10, 2, 2), 6)] == [4, 4, 2, 4, 4, 2]


@given(sizes, st.integers(0, 12))
def test_a_saved_place_continues_exactly_there(size: tuple[int, int, int, int], taken: int) -> None:
    rows, batch, accumulation, seed = size
    first = loader(rows, batch, accumulation, seed)
    list(islice(first, taken))
    again = loader(rows, batch, accumulation, seed)
    again.load_state_dict(first.state_dict())
    assert [content(s) for s in islice(again, 4)] == [content(s) for s in islice(first, 4)]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    steps = loader(50, 2, 2, seed=3)
    assert steps.order(0) == loader(50, 5, 1, seed=3).order(0)
    assert steps.order(0) != steps.order(1)
    assert steps.order(0) != loader(50, 2, 2, seed=4).order(0)
    torch.manual_seed(9)
    torch.rand(5)
    assert steps.order(1) == loader(50, 2, 2, seed=3).order(1), "the global generator must not matter"


def test_looking_at_a_step_does_not_move_the_loader() -> None:
    steps = loader(10, 2, 1)
    looked = content(steps.at(0, 0))
    assert content(next(iter(steps))) == looked
    assert (steps.epoch, steps.position) == (0, 1)


def test_epochs_counts_what_was_read() -> None:
    steps = loader(8, 2, 1)
    list(islice(steps, 6))
    assert steps.epochs() == 1.5


@pytest.mark.parametrize(("change", "named"), [({"seed": 1}, "seed"), ({"rows": 11}, "rows")])
def test_a_place_in_other_data_is_refused(change: dict[str, int], named: str) -> None:
    state = loader(10, 2, 1).state_dict() | change
    with pytest.raises(ValueError, match=named):
        loader(10, 2, 1).load_state_dict(state)


@given(sizes, st.integers(1, 4))
def test_ranks_share_each_step_and_run_equally_many_micro_batches(size: tuple[int, int, int, int], world: int) -> None:
    rows, batch, accumulation, seed = size
    ranks = [loader(rows, batch, accumulation, seed, rank, world) for rank in range(world)]
    alone = loader(rows, batch, accumulation * world, seed)
    for _ in range(min(alone.steps_per_epoch, 3)):
        shares = [next(iter(rank)) for rank in ranks]
        assert sorted(row for share in shares for row in read(share)) == sorted(read(next(iter(alone))))
        assert len({len(share) for share in shares}) == 1


def test_a_blank_batch_keeps_its_shape_and_counts_nothing() -> None:
    batch = layout(collate([1, 2]))
    assert blank(batch).labels.tolist() == [[-100], [-100]]
    assert blank(batch).input_ids.tolist() == batch.input_ids.tolist()
    assert batch.labels.tolist() == [[1], [2]]


def test_the_loader_has_no_length_for_trainer_to_shuffle_by() -> None:
    with pytest.raises(TypeError):
        len(loader(4, 1, 1))  # type: ignore[arg-type]


def test_rows_are_asked_for_by_number_only() -> None:
    class Rows:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: Any) -> int:
            assert type(index) is int
            return index

    assert sorted(read(next(iter(StepLoader(MicroBatches(Rows(), collate, layout, 3), accumulation=1, seed=0))))) == [
        0,
        1,
        2,
    ]
