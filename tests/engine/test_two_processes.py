"""Two processes take the steps of one: the same losses, gradient norms and weights, whatever falls to whom."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = """
import importlib.util, json, os, sys, pathlib
import torch
spec = importlib.util.spec_from_file_location("bench", sys.argv[1])
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)
from memcfg.engine.build import build
from memcfg.engine.trainer import EngineTrainer

torch.set_num_threads(1)
world = int(os.environ.get("WORLD_SIZE", 1))
# seven rows in steps of four: the second step of an epoch holds three, and one row has no target
hooks = bench.FakeHooks(bench.rows((9, 3, 7, 5, 12, 4, 6), masked=(3,)), held_out=bench.rows((4, 9, 6, 5, 8), seed=5))
plan = bench.plan(device_type="cpu", run_steps=5, run_batch_size=1, run_accumulation=4 // world, run_log_steps=1)
trainer = EngineTrainer(build(plan, hooks), pathlib.Path(sys.argv[2]))
trainer.train()
found = {name: [line[name] for line in trainer.state.log_history if name in line] for name in ("loss", "grad_norm")}
found["eval_loss"] = trainer.evaluate()["eval_loss"]
found["weights"] = [float(p.detach().double().sum()) for p in trainer.run.model.parameters()]
found["distributed"] = trainer.accelerator.distributed_type.value


class Limited(bench.Objective):
    # on the last process two rows at once do not fit: the first layer finds no room for its gradients
    hook = None

    def loss_sum(self, model, batch):
        if self.hook is not None:
            self.hook.remove()
            self.hook = None
        large = batch.source is not None and len(batch.source.rows) > 1 and torch.is_grad_enabled()
        if large and int(os.environ.get("RANK", 0)) == world - 1:
            self.hook = model.model.layers[0].register_full_backward_hook(full)
        return super().loss_sum(model, batch)


def full(*_):
    raise torch.OutOfMemoryError("full")


def shrinking(name):
    hooks = bench.FakeHooks(bench.rows((9, 3, 7, 5, 12, 4, 6), masked=(3,)), objective=lambda plan: Limited())
    asked = {"run_steps": 5, "run_batch_size": 2, "run_accumulation": 2 // world, "run_save_steps": 3}
    plan = bench.plan(device_type="cpu", run_on_oom="shrink", **asked)
    return EngineTrainer(build(plan, hooks), pathlib.Path(sys.argv[2], name))


def weights(trainer):
    return [p.detach().clone() for p in trainer.run.model.parameters()]


whole, resumed = shrinking("whole"), shrinking("resumed")
whole.train()
found["shrunk"] = [float(p.double().sum()) for p in weights(whole)]
found["parts"] = whole.shrinking.parts
from memcfg.engine import checkpoint
resumed.go_on_from(checkpoint.read(whole.folder / "checkpoint-3"))
found["resumed"] = all(map(torch.equal, weights(resumed), weights(whole)))
if os.environ.get("RANK", "0") == "0":
    pathlib.Path(sys.argv[2], "found.json").write_text(json.dumps(found))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def trained(python: str, folder: Path, world: int) -> dict[str, Any]:
    folder.mkdir()
    (folder / "script.py").write_text(SCRIPT)
    command = [python, str(folder / "script.py"), str(Path(__file__).with_name("conftest.py")), str(folder)]
    alone = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_WAIT_POLICY": "PASSIVE"}
    together = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True,
            env=alone if world == 1 else alone | together | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world)
    ]  # fmt: skip
    for rank in ranks:
        _, said = rank.communicate(timeout=300)
        assert rank.returncode == 0, said
    return json.loads((folder / "found.json").read_text())


def test_two_processes_take_the_steps_of_one(warm_python: str, tmp_path: Path) -> None:
    one, two = trained(warm_python, tmp_path / "one", 1), trained(warm_python, tmp_path / "two", 2)
    assert (one.pop("distributed"), two.pop("distributed")) == ("NO", "MULTI_CPU")
    assert two["eval_loss"] == pytest.approx(one["eval_loss"], rel=1e-6)
    for name in ("loss", "grad_norm", "weights"):
        assert two[name] == pytest.approx(one[name], rel=1e-5), name
    assert len(one["loss"]) == 5
    for found in (one, two):
        assert found["shrunk"] == pytest.approx(one["weights"], rel=1e-5), "memory ran out on one process alone"
        assert found["parts"] == 2, "the other takes halves too from the next step on"
        assert found["resumed"], "from the third step on, to the last bit"
