"""Two processes go on from a checkpoint, under every strategy, to the last bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.distributed]

SMALL = ("data=jsonl", "data.path=rows.jsonl", "model.hidden=32", "model.layers=2", "truncation.max_length=32",
         "run.steps=4", "run.save_steps=2", "run.log_steps=1", "distributed.processes=2", "-q")  # fmt: skip


def trained(folder: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "memcfg", *SMALL, *words], cwd=folder, capture_output=True, text=True, timeout=600,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def lines(folder: Path) -> list[dict[str, object]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "tokens_per_second"} for line in found]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2", "zero2", "zero3"])
def test_two_processes_go_on_to_the_last_bit(tmp_path: Path, strategy: str) -> None:
    if strategy.startswith("zero"):
        pytest.importorskip("deepspeed")
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"text": f"def f{n}(x):\n  return {n}\n"}) + "\n" for n in range(24))
    )
    trained(tmp_path, f"distributed={strategy}", "run.dir=whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "pieces")
    for name in ("checkpoint-4", "model"):
        shutil.rmtree(tmp_path / "pieces" / name)
    (tmp_path / "pieces" / "report.json").unlink()
    trained(tmp_path, f"distributed={strategy}", "run.dir=pieces", "run.resume=auto")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "pieces")]
    assert weights[0] == weights[1]
    assert lines(tmp_path / "pieces") == lines(tmp_path / "whole")
    assert not list((tmp_path / "pieces").glob(".*"))
