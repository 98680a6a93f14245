"""Sampling in a simulation: what grows by several tokens at once is what it would be, had they come one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memcfg_generation.simulated import Leaps, grow
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, StaticLayer

pytestmark = pytest.mark.torch

LAYERS = {
    "dynamic": DynamicLayer,
    "sliding": lambda: DynamicSlidingWindowLayer(sliding_window=8),
    "static": lambda: StaticLayer(max_cache_len=64),
}


def filled(kind: str, prompt: int) -> Any:
    layer = LAYERS[kind]()
    layer.update(*states(prompt))
    layer.update(*states(1))
    return layer


def states(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(2, 3, length, 4), torch.zeros(2, 3, length, 4)


def seen(layer: Any) -> tuple[Any, ...]:
    return (
        layer.keys.shape, layer.keys.untyped_storage().nbytes(), layer.values.untyped_storage().nbytes(),
        int(layer.get_seq_length()), layer.get_mask_sizes(1),
    )  # fmt: skip


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("prompt", [1, 5, 6, 7, 8, 20])
@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_a_cache_that_grows_at_once_is_one_that_grew_token_by_token(kind: str, prompt: int, count: int) -> None:
    at_once, by_token = filled(kind, prompt), filled(kind, prompt)
    grow(at_once, count)
    for _ in range(count):
        by_token.update(*states(1))
    assert seen(at_once) == seen(by_token)


@pytest.mark.parametrize(
    ("limit", "stride", "sampled"),
    [
        (1, 1, [1]),
        (3, 4, [1, 2, 3]),
        (8, 3, [1, 2, 5, 7, 8]),
        (40, 10, [1, 2, 12, 22, 32, 39, 40]),
    ],
)
def test_the_first_and_the_last_tokens_are_sampled_one_by_one(limit: int, stride: int, sampled: list[int]) -> None:
    """`sampled` are the numbers of the tokens that a forward is run for."""
    leaps, layer, found = Leaps(limit, stride), filled("dynamic", 3), list[int]()
    while leaps.sampled < limit:
        found.append(leaps.sampled + 1)
        leaps._next([layer])
    assert found == sampled


def test_a_cache_of_which_nothing_is_known_is_filled_token_by_token() -> None:
    class Own(DynamicLayer):
        pass

    leaps = Leaps(40, 10)
    assert [leaps._next([Own()]) for _ in range(5)] == [0] * 5
