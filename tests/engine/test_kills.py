"""Runs that are killed outright, at moments that nobody chose, end with the weights of a run that was not.

One process loads what is heavy and forks the runs, so that each costs little more than its steps."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

NURSERY = """
import json, os, random, signal, sys, time
import torch
import memcfg.engine.execute
from memcfg.cli import main

torch.set_num_threads(1)
chance = random.Random(int(sys.argv[1]))
kills, words = int(sys.argv[2]), sys.argv[3:]


def begun(folder, *more):
    child = os.fork()
    if child == 0:
        log = os.open(folder + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1), os.dup2(log, 2)
        os._exit(main([*words, "run.dir=" + folder, *more]))
    return child


def steps(folder):
    try:
        with open(folder + "/metrics.jsonl") as lines:
            return sum(1 for _ in lines)
    except FileNotFoundError:
        return 0


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


assert ended(begun("whole")) == 0
moments = []
while len(moments) < kills:
    child, before = begun("pieces", "run.resume=auto"), steps("pieces")
    until, patience = steps("pieces") + chance.randint(1, 5), time.monotonic() + 60
    while steps("pieces") < until and time.monotonic() < patience:
        time.sleep(0.001)
    time.sleep(chance.random() * 0.01)
    os.kill(child, signal.SIGKILL)
    assert ended(child) == -signal.SIGKILL, "it was over before it could be killed"
    moments.append(steps("pieces"))
assert ended(begun("pieces", "run.resume=auto")) == 0
print(json.dumps(moments))
"""

SMALL = ("data=jsonl", "data.path=rows.jsonl", "model.hidden=16", "model.layers=1", "truncation.max_length=32",
         "run.log_steps=1", "run.save_steps=3", "run.keep_checkpoints=2", "-q")  # fmt: skip
RANDOM = ("model.dtype=bfloat16", "optimizer=adamw_bf16", "optimizer.weight_decay=0.1", "run.scheduler=cosine")
"""Every update draws random numbers, and the learning rate is never the same."""
KINDS = {
    "plain": (),
    "packed": ("packing=bfd_split",),
    "accumulation": ("run.accumulation=3", "packing=bfd_split"),
    "stream": ("data.streaming=true", "packing=bfd_split", "packing.buffer=7"),
    "adapter": ("peft=lora", "peft.dropout=0.2", "model.dtype=float32", "optimizer=adamw"),
}


def killed(python: str, folder: Path, kind: str, kills: int, steps: int, seed: int) -> list[int]:
    """Train once without and once with that many kills; how many lines each had written."""
    rows = random.Random(0)
    texts = [f"def f{n}(x):\n    return {'x + ' * rows.randint(1, 6)}{n}\n" for n in range(23)]
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    words = [*SMALL, *RANDOM, *KINDS[kind], f"run.steps={steps}"]
    done = subprocess.run(
        [python, "-c", NURSERY, str(seed), str(kills), *words], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"}, timeout=1200,
    )  # fmt: skip
    logs = "".join(path.read_text() for path in folder.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    return list(json.loads(done.stdout.splitlines()[-1]))


def lines(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "tokens_per_second"} for line in found]


def same(folder: Path, kind: str) -> None:
    """The same weights, byte for byte, the same metrics and the same account."""
    whole, pieces = folder / "whole", folder / "pieces"
    (weights,) = (path.name for path in (whole / "model").glob("*.safetensors"))
    assert (pieces / "model" / weights).read_bytes() == (whole / "model" / weights).read_bytes()
    assert lines(pieces) == lines(whole)
    account = () if kind == "stream" else ("ledger.json",)  # a stream's misses what was read ahead where it went on
    for name in ("batches.json", *account):
        assert (pieces / name).read_text() == (whole / name).read_text(), name


def test_a_run_that_is_killed_three_times_ends_with_the_same_weights(warm_python: str, tmp_path: Path) -> None:
    killed(warm_python, tmp_path, "accumulation", kills=3, steps=30, seed=1)
    same(tmp_path, "accumulation")


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_runs_that_are_killed_again_and_again_end_with_the_same_weights(
    warm_python: str, tmp_path: Path, kind: str
) -> None:
    killed(warm_python, tmp_path, kind, kills=5, steps=60, seed=random.SystemRandom().randrange(2**31))
    same(tmp_path, kind)
