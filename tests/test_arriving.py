"""Weights that come when they are asked for: in which order, once each, and changed one at a time."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
from memcfg.arriving import arrive, held, hold, moved  # noqa: E402

nn: Any = torch.nn


def block() -> Any:
    return nn.ModuleDict({"first": nn.Linear(2, 3), "inner": nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))})


def test_modules_come_from_the_inside_out_in_the_order_in_which_they_lie() -> None:
    model, came, changed = block(), [], []

    def change(name: str, module: Any) -> Any:
        changed.append(name)
        return module

    hold(model, came.append)
    assert held(model)
    arrive(model, change)
    assert not held(model)
    assert came == [model["first"], model["inner"][0], model["inner"][1], model["inner"], model]
    assert changed == ["first", "inner.0", "inner.1", "inner"]


def test_what_takes_a_modules_place_stands_in_all_of_its_places() -> None:
    shared = nn.Linear(2, 2)
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, nn.ReLU())})
    hold(model, lambda module: None)
    arrive(model, lambda name, module: nn.Identity() if isinstance(module, nn.Linear) else module)
    assert isinstance(model["a"], nn.Identity)
    assert model["b"][0] is model["a"]


def test_no_module_is_kept_once_another_has_its_place() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    weights = [weakref.ref(layer.weight) for layer in model]
    alive = []

    def bring(module: Any) -> None:
        alive.append(sum(weight() is not None for weight in weights))

    def change(name: str, module: Any) -> Any:
        module.weight = None
        return nn.Identity()

    hold(model, bring)
    arrive(model, change)
    assert alive == [4, 3, 2, 1, 0]


def test_nothing_comes_twice_and_nothing_comes_to_a_model_that_is_not_held() -> None:
    model, came = block(), []
    arrive(model)
    hold(model, came.append)
    arrive(model)
    arrive(model)
    assert len(came) == 5


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_weights_that_are_moved_stay_shared(device: str) -> None:
    model = nn.ModuleDict({"words": nn.Embedding(5, 4), "head": nn.Linear(4, 5, bias=False)})
    model["head"].weight = model["words"].weight
    model.register_buffer("table", torch.ones(3))
    hold(model, moved(device))
    arrive(model)
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {device}
    assert model["head"].weight is model["words"].weight


def test_a_copy_of_a_model_whose_weights_have_come_is_not_held() -> None:
    model = block()
    hold(model, lambda module: None)
    arrive(model)
    assert not held(copy.deepcopy(model))
