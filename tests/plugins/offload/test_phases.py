"""Optimizer states on the host while completions are sampled: what training does stays bit for bit what it was."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from memcfg_offload.hooks import memcfg_evidence, memcfg_sampling_context
from memcfg_offload.phases import LaidAside, local

from memcfg import Decision, Plan

pytestmark = pytest.mark.torch

KINDS: dict[str, Any] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "plain": lambda p: torch.optim.SGD(p, lr=0.1),
}


def trained(kind: str, *, aside: bool) -> tuple[dict[str, Any], Any]:
    """The weights after five steps with a round of sampling before each; gradients are kept through the third one."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3))
    optimizer = KINDS[kind](model.parameters())
    for step in range(5):
        if aside:
            with LaidAside.of(SimpleNamespace(optimizer=optimizer), pin=False):
                model(torch.ones(2, 7))
        if step != 2:
            optimizer.zero_grad()
        model(torch.full((4, 7), float(step))).square().sum().backward()
        optimizer.step()
    return dict(model.state_dict()), optimizer


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_not_touched(kind: str) -> None:
    expected, _ = trained(kind, aside=False)
    found, optimizer = trained(kind, aside=True)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    made = LaidAside.of(optimizer, pin=False)
    numbers, copies = 7 * 5 + 5 + 5 * 3 + 3, {"adamw": 3, "amsgrad": 4, "momentum": 2, "plain": 1}[kind]
    assert (made.rounds, made.complete) == (5, True)
    assert made.bytes == 4 * numbers * copies, "gradients and states, without the counters of steps"


def test_the_device_is_free_of_it_meanwhile_and_host_memory_is_used_again() -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    average = optimizer.state[model.weight]["exp_avg"]
    value, on_device = average.clone(), average.data_ptr()
    aside, addresses = LaidAside.of(optimizer, pin=False), []
    for _ in range(2):
        with aside:
            addresses.append(average.data_ptr())
            assert average.data_ptr() != on_device
            assert torch.equal(average, value)
            assert optimizer.state[model.weight]["exp_avg"] is average
        assert average.data_ptr() != addresses[-1]
        assert torch.equal(average, value)
    assert addresses[0] == addresses[1]


def test_what_states_share_is_moved_once_and_comes_back() -> None:
    shared, weights = torch.arange(4.0), [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for weight in weights:
        optimizer.state[weight]["table"] = shared
    aside = LaidAside.of(optimizer, pin=False)
    with aside:
        assert len(aside._moved) == 1
    assert torch.equal(shared, torch.arange(4.0))
    assert (aside.bytes, aside.complete) == (16, True)


@pytest.fixture
def one_process() -> Iterator[None]:
    """torch.distributed with this process alone in it."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_of_distributed_tensors_the_own_shard_is_moved() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    model = torch.nn.Linear(6, 3)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
    average, gradient = optimizer.state[model.weight]["exp_avg"], model.weight.grad
    assert isinstance(average, DTensor)
    assert isinstance(gradient, DTensor)
    shards = [local(t) for t in (average, gradient)]
    before, values = [t.data_ptr() for t in shards], [t.clone() for t in shards]
    aside = LaidAside.of(optimizer, pin=False)
    with aside:
        assert all(t.data_ptr() != address for t, address in zip(shards, before, strict=True)), "it lies elsewhere"
        assert local(average).data_ptr() == shards[0].data_ptr(), "and the optimizer's tensor is the moved one"
    assert all(torch.equal(t, value) for t, value in zip(shards, values, strict=True))
    assert (aside.complete, aside.bytes) == (True, 4 * 3 * (6 * 3 + 3))
    optimizer.step()  # as if nothing had been


def test_an_error_while_sampling_puts_everything_back() -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    expected = {id(t): t.clone() for t in LaidAside.of(optimizer, pin=False)._tensors()}
    with pytest.raises(KeyboardInterrupt), LaidAside.of(optimizer, pin=False):
        raise KeyboardInterrupt
    assert len(expected) == 6
    assert all(torch.equal(expected[id(t)], t) for t in LaidAside.of(optimizer, pin=False)._tensors())
    assert LaidAside.of(optimizer, pin=False)._moved == []


def plan(**values: Any) -> Plan:
    chosen = {"offload.activations": "none", "offload.pin": True, "offload.phases": True, "device.type": "cpu"} | values
    return Plan({name: Decision(value, "default") for name, value in chosen.items()})


def test_evidence_is_of_rounds_that_happened() -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))], lr=0.1)
    run = SimpleNamespace(optimizer=optimizer, contexts=[])
    (found,) = memcfg_evidence(plan(), run, [])
    assert (found.key, found.effective) == ("offload.phases", False)
    (context,) = memcfg_sampling_context(plan(), torch.nn.Linear(1, 1), optimizer, [])
    with context:
        pass
    (found,) = memcfg_evidence(plan(), run, [])
    assert (found.effective, found.evidence) == (
        True, "nothing yet, as there are no states before the first update, on the host during 1 round(s) of sampling",
    )  # fmt: skip
    off = plan(**{"offload.phases": False})
    assert memcfg_sampling_context(off, torch.nn.Linear(1, 1), torch.optim.SGD([torch.ones(1)], lr=0.1), []) == []
    (found,) = memcfg_evidence(
        off, SimpleNamespace(optimizer=torch.optim.SGD([torch.ones(1)], lr=0.1), contexts=[]), []
    )
    assert found.effective is False
