"""Steps whose completions are sampled: which ones, from what, and that a run that goes on makes the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datasets
import pytest
import torch

from memcfg import RunError
from memcfg.engine.layout import Paper
from memcfg.engine.loader import MicroBatches
from memcfg.engine.pairs import collate
from memcfg.engine.renewed import RenewedLoader, completed, longest_prompt, prompt_of
from memcfg.engine.rounds import Sampler, has_room
from memcfg.rollouts import OWN, Renewing, Sample

pytestmark = pytest.mark.torch

ROWS = [
    {"input_ids": [10 + i, 11, 12, 2], "labels": [-100, -100, 12, 2], "seq_lengths": [4]} for i in range(10)
]  # fmt: skip


class Echo:
    """A backend that completes with what it was given of the model, and the seed: `[weight, seed % 7]`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.weight = -1

    def wake(self, part: str) -> None:
        self.calls.append(f"wake {part}")

    def sync(self, model: Any) -> None:
        self.weight = int(model.weight)

    def generate(self, prompts: Sequence[Sequence[int]], *, seed: int | None, limit: int) -> list[Sample]:
        self.calls.append("generate")
        return [Sample([20 + self.weight, (seed or 0) % 7], True) for _ in prompts]

    def sleep(self) -> None:
        self.calls.append("sleep")

    def close(self) -> None: ...


class Half:
    """Half of the steps are the student's, a quarter another's."""

    renews, limit = True, 2

    def __init__(self) -> None:
        self.told: list[str | None] = []

    def others(self) -> Any:
        return {}

    def source(self, drawn: float) -> str | None:
        assert 0 <= drawn < 1
        return OWN if drawn < 0.5 else "teacher" if drawn < 0.75 else None

    def renewed(self, name: str | None) -> None:
        self.told.append(name)


def loader(model: Any, *, rank: int = 0, world: int = 1, seed: int = 3) -> tuple[RenewedLoader, Half, Echo]:
    from memcfg_padding.hooks import PaddedLayout

    batches = MicroBatches(ROWS, collate, PaddedLayout(Paper(pad_id=0)), 2, rank, world)
    objective, echo = Half(), Echo()
    teacher = torch.nn.Module()
    teacher.weight = 5
    samplers = {
        OWN: Sampler(echo, lambda: model, list, 2),
        "teacher": Sampler(echo, lambda: teacher, list, 2),
    }
    return RenewedLoader(batches, objective, samplers, accumulation=2, seed=seed), objective, echo


def student() -> Any:
    model = torch.nn.Module()
    model.weight = 0
    return model


def steps(made: RenewedLoader, model: Any, count: int) -> list[list[list[int]]]:
    """The tokens of each micro-batch of the next steps; the model moves after each."""
    found = []
    for _, step in zip(range(count), made, strict=False):
        found.append([batch.input_ids.tolist() for batch in step])
        model.weight += 1
    return found


def test_a_sampled_step_has_the_weights_of_its_time_and_keeps_its_prompts() -> None:
    model = student()
    made, objective, echo = loader(model)
    given = [made.whose(*place) for place in ((0, 0), (0, 1), (0, 2), (1, 0))]
    seen: set[str | None] = set()
    for number, step in zip(range(12), made, strict=False):
        name = objective.told[number]
        for batch in step:
            for ids, labels in zip(batch.input_ids.tolist(), batch.labels.tolist(), strict=True):
                assert ids[1] == 11, "the prompt is that of the row"
                if name is None:
                    assert ids[2:] == [12, 2]
                else:
                    weight = model.weight if name == OWN else 5
                    assert ids[2] == 20 + weight
                    assert labels == [-100, -100, *ids[2:]]
        seen.add(name)
        model.weight += 1
    assert objective.told[:4] == given
    assert seen == {OWN, "teacher", None}
    rounds = sum(name is not None for name in objective.told)
    assert echo.calls.count("sleep") == rounds, "one round for each sampled step"


def test_micro_batches_of_a_step_have_seeds_of_their_own() -> None:
    model = student()
    made, _, _ = loader(model)
    tails = set()
    for step in steps(made, model, 12):
        tails |= {tuple(row[3] for row in batch) for batch in step}
    assert len(tails) > 4


def test_a_loader_that_goes_on_makes_the_same_steps() -> None:
    model = student()
    made, _, _ = loader(model)
    whole = steps(made, model, 9)
    first = student()
    begun, _, _ = loader(first)
    steps(begun, first, 4)
    resumed, objective, _ = loader(first)
    resumed.load_state_dict(begun.state_dict())
    assert steps(resumed, first, 5) == whole[4:]
    assert len(objective.told) == 5


def test_looking_at_a_step_early_changes_nothing() -> None:
    model = student()
    made, objective, _ = loader(model)
    early = [batch.input_ids.tolist() for batch in made.at(0, 0)]
    assert objective.told == []
    assert steps(made, model, 1) == [early]


def test_every_process_decides_alike_and_samples_its_own_rows() -> None:
    told = []
    for rank in (0, 1):
        model = student()
        made, objective, _ = loader(model, rank=rank, world=2)
        tokens = steps(made, model, 6)
        told.append((objective.told, tokens))
    assert told[0][0] == told[1][0]
    assert told[0][1] != told[1][1]


def test_prompts_and_completions_of_rows() -> None:
    assert prompt_of(ROWS[0]) == [10, 11]
    assert prompt_of({"input_ids": [1, 2], "labels": [-100, -100]}) == [1, 2]
    assert completed([1, 2], Sample([3], False)) == {
        "input_ids": [1, 2, 3],
        "labels": [-100, -100, 3],
        "seq_lengths": [3],
    }
    assert longest_prompt(datasets.Dataset.from_list(ROWS)) == 2
    assert isinstance(Half(), Renewing)


def test_a_prompt_without_room_is_refused(bench: Any) -> None:
    model = bench.model()
    positions = model.config.max_position_embeddings
    has_room(positions - 4, model, 4)
    with pytest.raises(RunError) as caught:
        has_room(positions - 4, model, 5)
    assert str(caught.value).endswith("generation.max_new_tokens=4")
