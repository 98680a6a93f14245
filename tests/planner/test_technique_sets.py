"""Which technique sets the planner knows of, and what it takes them to need before it has looked: no torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from memcfg.compose import compose
from memcfg.planner.machine import named
from memcfg.planner.outline import Outline
from memcfg.planner.search import Search
from memcfg.planner.sets import Set, Wishes, axes, resolved, valid_sets
from memcfg.registry import Registry, load

REQUEST = ["model=shape", "model.preset=qwen3-8b", "assume.device=rtx4090", "run.batch_size=1"]
WISHES = Wishes(axes=("peft", "quantization", "checkpointing", "offload"), allow=("all",))


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load()


@pytest.fixture(scope="module")
def sets(registry: Registry) -> list[Set]:
    request = compose(REQUEST, registry=registry)
    return valid_sets(request, registry.plan(request), registry, WISHES)


def test_they_are_those_that_the_rules_allow(sets: list[Set], registry: Registry) -> None:
    request = compose(REQUEST, registry=registry)
    places = axes(request, registry.plan(request), registry, WISHES)
    allowed = []
    for picked in itertools.product(*places):
        choices = {k: v for values in picked for k, v in values.choices.items()}
        if resolved(request, choices, registry) is not None:
            allowed.append(choices)
    assert sorted(map(str, map(sorted, allowed))) == sorted(str(sorted(s.choices)) for s in sets)


def test_what_is_only_possible_with_something_else_is_among_them(sets: list[Set]) -> None:
    packed = [s for s in sets if s.choices.get("quantization.mode") == "nf4"]
    assert {"peft.method": "lora", "quantization.mode": "nf4"} in [s.choices for s in packed]
    assert all(s.choices.get("peft.method") == "lora" for s in packed)


def needs(chosen: Set) -> Outline:
    """16 for the model, less by 12 packed; 8 for gradients and states, none with an adapter; 4 for activations."""
    given = chosen.choices
    weights = {"nf4": 4, "int8": 8}.get(given.get("quantization.mode", ""), 16)
    states = 0 if "peft.method" in given else 8
    kept = 4 if given.get("checkpointing.mode") != "none" else 20
    return Outline(weights + states + kept, weights + states + kept, 100.0 + weights)


@pytest.fixture
def search(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Search:
    monkeypatch.setattr(Search, "of", lambda self, chosen: needs(chosen))
    return Search(compose(REQUEST, registry=registry), registry, named("rtx4090"), 24, WISHES)


def test_the_first_looks_are_at_each_change_with_as_little_else_as_it_can_be_had_with(
    sets: list[Set], search: Search
) -> None:
    found = [dict(s.choices) for s in search._simplest(sets)]
    lora: dict[str, Any] = {"peft.method": "lora"}
    assert found[0] == {}
    assert lora in found
    assert {**lora, "quantization.mode": "nf4"} in found
    assert {**lora, "quantization.mode": "int8"} in found
    assert max(len(choices) for choices in found) == 2


def test_savings_are_those_of_the_largest_known_parts(sets: list[Set], search: Search) -> None:
    asked = {"checkpointing.mode": "none", "peft.method": "lora", "quantization.mode": "nf4"}
    chosen = next(s for s in sets if s.choices == asked)
    assert search._estimate(chosen, search._simplest(sets)).needed == needs(chosen).needed == 4 + 20
