"""The order of prompts, the sizes of rounds, and the cycle that a backend of completions goes through."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from memcfg.engine.rounds import Order, Sampler, Sizes, seed_of
from memcfg.rollouts import Sample, end_tokens

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("accumulation", "asked", "updates", "expected"),
    [
        # (micro-batches of a step, sampled at a time, of a round), steps of a round
        (1, {}, 1, (1, 1, 1, 1)),
        (4, {}, 1, (4, 4, 4, 1)),
        (4, {}, 3, (4, 4, 4, 3)),
        (2, {"generation.steps": 6}, 2, (2, 6, 6, 6)),
        (4, {"generation.steps": 2}, 1, (4, 2, 4, 1)),
        (1, {"generation.batch_size": 32}, 1, (1, 2, 2, 2)),
    ],
)
def test_sizes(accumulation: int, asked: dict[str, int], updates: int, expected: tuple[int, ...]) -> None:
    plan: Any = {"run.accumulation": accumulation, "run.batch_size": 8, **asked}
    sizes = Sizes.of(plan, updates, 2)
    assert (sizes.step, sizes.sampled, sizes.whole, sizes.steps) == expected


def test_prompts_follow_each_other_without_a_gap() -> None:
    order = Order(5, 3, shuffle=True)
    found = [order[place] for place in range(15)]
    epochs = [found[:5], found[5:10], found[10:]]
    assert all(sorted(epoch) == [0, 1, 2, 3, 4] for epoch in epochs)
    assert epochs[0] != epochs[1] or epochs[1] != epochs[2]
    assert [order[place] for place in range(15)] == found  # back again
    assert [Order(3, 0, shuffle=False)[place] for place in range(6)] == [0, 1, 2, 0, 1, 2]


def test_every_round_and_process_has_a_seed_of_its_own() -> None:
    seeds = {seed_of(0, round_, part, rank) for round_ in range(3) for part in range(2) for rank in range(2)}
    assert len(seeds) == 12
    assert seed_of(0, 1, 0, 0) == seed_of(0, 1, 0, 0)


class Recording:
    """A backend that writes down what it is asked."""

    def __init__(self, said: list[Any], fails: bool = False) -> None:
        self.said, self.fails = said, fails

    def wake(self, part: str) -> None:
        self.said.append(f"wake {part}")

    def sync(self, model: Any) -> None:
        self.said.append(f"sync {model}")

    def generate(self, prompts: Any, *, seed: int | None, limit: int) -> list[Sample]:
        self.said.append(f"generate {len(prompts)} {seed} {limit}")
        if self.fails:
            raise RuntimeError("no")
        return [Sample([1], True) for _ in prompts]

    def sleep(self) -> None:
        self.said.append("sleep")

    def close(self) -> None: ...


def sampler(said: list[Any], *, fails: bool = False) -> Sampler:
    @contextmanager
    def around() -> Any:
        said.append("enter")
        try:
            yield
        finally:
            said.append("leave")

    return Sampler(Recording(said, fails), lambda: "now", lambda: [around()], 7)  # type: ignore[arg-type, return-value]


def test_a_backend_has_the_weights_of_now_before_it_samples() -> None:
    said: list[Any] = []
    made = sampler(said)
    for _ in range(2):
        assert [len(part) for part in made([[[1], [2]], [[3]]], [5, 6])] == [2, 1]
    once = ["enter", "wake weights", "sync now", "wake cache", "generate 2 5 7", "generate 1 6 7", "sleep", "leave"]
    assert said == once * 2
    assert made.seconds > 0


def test_it_sleeps_after_an_error_too() -> None:
    said: list[Any] = []
    with pytest.raises(RuntimeError, match="no"):
        sampler(said, fails=True)([[[1]]], [0])
    assert said[-2:] == ["sleep", "leave"]


@pytest.mark.parametrize(
    ("own", "saved", "expected"),
    [(2, None, [2]), (2, 5, [2, 5]), (2, [5, 2, 7], [2, 5, 7]), (None, [5], [5]), (None, None, [])],
)
def test_a_completion_ends_with_the_tokenizers_token_or_those_saved_with_the_weights(
    own: int | None, saved: Any, expected: list[int]
) -> None:
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=saved))
    assert end_tokens(model, SimpleNamespace(eos_token_id=own)) == expected
    if saved is None:
        assert end_tokens(SimpleNamespace(), SimpleNamespace(eos_token_id=own)) == expected
