"""One rank as it is predicted, beside what Accelerate and torch make of the model: its weights and states to the byte, and what
a step adds to them. The other ranks are made up and send nothing that means anything; allocations are real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from accelerate.state import AcceleratorState

from memcfg.compose import resolve
from memcfg.engine.build import build
from memcfg.engine.joining import join
from memcfg.engine.trainer import EngineTrainer
from memcfg.engine.update import counted, gradients
from memcfg.planner.batches import full_rows, micro_batches
from memcfg.planner.simulate import simulate
from memcfg.registry import Registry
from memcfg.testing import PeakMemory

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ASKED = (
    "model.hidden=64", "model.layers=3", "model.dtype=float32", "truncation.max_length=96", "run.batch_size=2", "optimizer.fused=false",
    "run.steps=4", "run.dir=.", "model.tied=false",
)  # fmt: skip

CASES = [
    (2, "fsdp2"),
    (3, "fsdp2 model.tied=true checkpointing=none loss=nll"),
    (2, "fsdp2 peft=lora peft.rank=32"),
    (3, "fsdp2 peft=lora peft.dora=true checkpointing=none"),
    (8, "fsdp2 run.accumulation=3 model.dtype=bfloat16"),
    (2, "ddp run.accumulation=2"),
]


@pytest.fixture
def first_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Makes this process the first of so many."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def start(world: int) -> None:
        for name, value in {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "RANK": 0, "LOCAL_RANK": 0}.items():
            monkeypatch.setenv(name, str(value))
        distributed.init_process_group("fake", rank=0, world_size=world, store=FakeStore())

    yield start
    distributed.destroy_process_group()
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize(("world", "choices"), CASES, ids=[f"{world} {choices}" for world, choices in CASES])
def test_a_rank_is_what_is_predicted(
    world: int, choices: str, first_of: Callable[[int], None], simulated: Callable[[Any], Any], registry: Registry, tmp_path: Path
) -> None:  # fmt: skip
    first_of(world)
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n' * 16)
    data = ("data=jsonl", f"data.path={tmp_path / 'rows.jsonl'}")
    plan = resolve([*ASKED, *data, *f"distributed.strategy={choices}".split()], registry=registry)
    kinds = simulate(plan, registry.hooks(plan)).to_dict()["kinds"]
    grown = simulated(plan).peak
    real = a_step(plan, registry, tmp_path)
    assert (kinds["weights"], kinds["optimizer"]) == (real["weights"], real["optimizer"])
    assert grown == pytest.approx(real["grown"], rel=1e-4)


def a_step(plan: Any, registry: Registry, folder: Path) -> dict[str, int]:
    """Bytes that one rank holds of the model and of its optimizer's states, by the storages of its own tensors, and by how much
    its third step grows at most: from then on replicas have the buckets that they keep."""
    hooks = registry.hooks(plan)
    join(plan, hooks)
    run = build(plan, hooks)
    trainer = EngineTrainer(run, folder)
    model, optimizer = trainer.accelerator.prepare(run.model, run.optimizer)
    if hasattr(model, "register_comm_hook"):
        model.register_comm_hook(None, as_it_is)
    batches = micro_batches(plan, hooks, run.tokenizer, run.layout, {}, full_rows(plan))
    count = counted(run.objective, batches)

    def once() -> None:
        gradients(model, batches, run.objective, contexts=run.contexts, denominator=count, ranks=trainer.ranks)
        trainer.accelerator.clip_grad_norm_(model.parameters(), plan["run.max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()

    once()
    once()
    with PeakMemory() as peak:
        once()
    states = [t for state in optimizer.state.values() for t in state.values() if t.dim()]  # counters lie on the host
    return {
        "weights": held([*model.parameters(), *model.buffers()]), "optimizer": held(states), "grown": peak.bytes,
    }  # fmt: skip


def as_it_is(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations here, and takes no strings
    """A bucket averaged with nobody's: a made-up group gives DDP no answer that it takes."""
    done: Any = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def held(tensors: list[Any]) -> int:
    storages = [getattr(t, "_local_tensor", t).untyped_storage() for t in tensors]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())
