"""What each of two real processes allocates in a step, beside what is predicted of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.distributed]

SCRIPT = """
import json, os, sys, warnings
warnings.filterwarnings("ignore")
import torch
from pathlib import Path
import memcfg
from memcfg.engine.build import build
from memcfg.engine.joining import join
from memcfg.engine.trainer import EngineTrainer
from memcfg.engine.update import counted, gradients
from memcfg.planner.batches import full_rows, micro_batches
from memcfg.planner.simulate import simulate
from memcfg.registry import load
from memcfg.testing import PeakMemory

torch.set_num_threads(1)
folder, registry, found = Path(sys.argv[1]), load(), {}
for strategy in ("fsdp2", "ddp"):
    plan = memcfg.resolve([
        "model.hidden=64", "model.layers=3", "truncation.max_length=96", "run.batch_size=2", "run.accumulation=2", "run.steps=4",
        "optimizer.fused=false", "data=jsonl", f"data.path={folder / 'rows.jsonl'}", f"run.dir={folder}",
        f"distributed={strategy}",
    ])
    hooks = registry.hooks(plan)
    group = join(plan, hooks)
    run = build(plan, hooks)
    trainer = EngineTrainer(run, folder)
    model, optimizer = trainer.accelerator.prepare(run.model, run.optimizer)
    batches = micro_batches(plan, hooks, run.tokenizer, run.layout, {}, full_rows(plan))
    count = counted(run.objective, batches)

    def once():
        gradients(model, batches, run.objective, contexts=run.contexts, denominator=count, ranks=trainer.ranks)
        trainer.accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    once()
    once()
    with PeakMemory() as peak:
        once()
    said = simulate(plan, hooks)
    there = sum(said.kinds[kind] for kind in ("weights", "optimizer", "inputs"))
    if strategy == "ddp":
        there += sum(p.numel() * p.element_size() for p in run.model.parameters())  # the buckets
    found[strategy] = [peak.bytes, said.allocated_bytes - there]
(folder / f"{group.rank}.json").write_text(json.dumps(found))
torch.distributed.destroy_process_group()
"""


def test_a_step_of_two_processes_grows_as_predicted_of_one(by_two: Callable[..., list[Any]], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n' * 16)
    for rank, found in enumerate(by_two(SCRIPT)):
        for strategy, (real, predicted) in found.items():
            assert predicted == pytest.approx(real, rel=1e-4), (rank, strategy)
