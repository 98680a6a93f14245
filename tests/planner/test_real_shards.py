"""A rank's weights and states as they are predicted, beside what torch's own `fully_shard` makes of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from memcfg.compose import resolve
from memcfg.engine.build import build
from memcfg.planner.simulate import simulate
from memcfg.registry import load

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ASKED = (
    "model.hidden=48", "model.layers=3", "model.dtype=float32", "truncation.max_length=32", "run.batch_size=1",
    "checkpointing=none", "optimizer.fused=false",
)  # fmt: skip


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[int]:
    """The first of so many processes; the others are made up, and send zeros."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=request.param, store=FakeStore())
    yield request.param
    distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("world", "choices"), [(2, ["peft=lora", "peft.rank=32"]), (3, ["peft=lora", "peft.dora=true"])], indirect=["world"]
)
def test_weights_and_states_of_a_rank(choices: list[str], world: int) -> None:
    registry = load()
    spread = [f"assume.world.size={world}", "distributed=fsdp2", "assume.device=h100"]
    plan = resolve([*ASKED, *choices, *spread], registry=registry)
    found = simulate(plan, registry.hooks(plan)).to_dict()["kinds"]
    real = sharded(resolve([*ASKED, *choices], registry=registry), registry, world)
    assert (found["weights"], found["optimizer"]) == (real["weights"], real["optimizer"])


def sharded(plan: Any, registry: Any, world: int) -> dict[str, int]:
    """Bytes that one rank holds of the model and of its optimizer's states, by the storages of its own tensors."""
    model = build(plan, registry.hooks(plan), device="cpu", data=False).model
    mesh = init_device_mesh("cpu", (world,))
    for layer in model.get_decoder().layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    states = [t for state in optimizer.state.values() for t in state.values() if t.dim()]  # counters lie on the host
    return {"weights": held([*model.parameters(), *model.buffers()]), "optimizer": held(states)}


def held(tensors: list[Any]) -> int:
    storages = [getattr(t, "_local_tensor", t).untyped_storage() for t in tensors]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())
