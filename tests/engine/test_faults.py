"""What goes wrong in long runs: one clear message, nothing lost, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer

from memcfg import RunError
from memcfg.engine import checkpoint
from memcfg.engine.execute import train
from memcfg.files import claimed

pytestmark = pytest.mark.torch


def message(bench: Any, folder: Path, hooks: Any, **plan: Any) -> str:
    with pytest.raises(RunError) as raised:
        train(bench.plan(**plan), hooks, folder)
    return str(raised.value)


# ------------------------------------------------------------------------------------------------ a loss that is not finite


def poisoned(bench: Any, number: int, bad: float) -> Any:
    """An objective that one row makes infinite."""

    class Poisoned(bench.Objective):  # type: ignore[name-defined, misc]
        def loss_sum(self, model: Any, batch: Any) -> torch.Tensor:
            hit = batch.source is not None and number in batch.source.numbers and model.training
            return super().loss_sum(model, batch) * (bad if hit and torch.is_grad_enabled() else 1.0)

    return Poisoned()


def test_a_loss_that_is_not_finite_names_the_rows_and_shows_them(bench: Any, tmp_path: Path) -> None:
    hooks = bench.Hooks(objective=lambda plan: poisoned(bench, 4, float("nan")))
    said = message(bench, tmp_path / "run", hooks, run_accumulation=3)
    shown = json.loads((tmp_path / "run" / "not_finite.json").read_text())
    (wrong,) = shown["micro_batches"]
    first, second = wrong["rows"]
    assert said == (
        f"`run.learning_rate`: the loss of step 1 is nan, through 1 of its 3 micro-batches: prepared rows {first}, {second}\n"
        f"  `{tmp_path / 'run' / 'not_finite.json'}` shows them; a lower `run.learning_rate`, a longer `run.warmup_steps` or "
        "another `model.dtype` may help"
    )
    assert 4 in (first, second)
    row = bench.rows()[4]
    document = wrong["documents"][wrong["rows"].index(4)]
    assert document["tokens"] == row["input_ids"]
    assert document["text"].split() == [f"w{token}" for token in row["input_ids"]]
    assert document["targets"] == len(row["input_ids"]) - 2


def test_many_rows_are_not_all_named(bench: Any, tmp_path: Path) -> None:
    hooks = bench.Hooks(bench.rows([5] * 12), objective=lambda plan: poisoned(bench, 4, float("inf")))
    said = message(bench, tmp_path / "run", hooks, run_batch_size=12)
    assert "the loss of step 1 is inf: prepared rows " in said
    assert " and 4 more\n" in said


# ------------------------------------------------------------------------------------------------ disks


def test_a_disk_that_fills_leaves_the_checkpoint_before(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever writing fails: the weights, the optimizer, the state of the data, the list that is written last."""
    folder = tmp_path / "run"
    plain = Trainer._save_optimizer_and_scheduler

    def full(self: Any, where: str) -> None:
        if self.state.global_step == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(self, where)

    monkeypatch.setattr(Trainer, "_save_optimizer_and_scheduler", full)
    said = message(bench, folder, bench.Hooks(), run_steps=6, run_save_steps=2, run_keep_checkpoints=1)
    assert said == (
        f"`run.dir`: cannot write `{folder / 'checkpoint-4'}`: no space left on device\n"
        "  choose a `run.dir` with room that you may write"
    )
    whole, torn = checkpoint.found(folder)
    assert ([c.step for c in whole], torn, list(folder.glob(".*"))) == ([2], {}, [])
    monkeypatch.undo()
    train(bench.plan(run_steps=6, run_resume="auto"), bench.Hooks(), folder)
    assert (folder / "model" / "model.safetensors").is_file()


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
from memcfg.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_file_that_may_not_grow_is_one_message(warm_python: str, tmp_path: Path) -> None:
    """In a process of its own, with the system's real limit in place of a full disk."""
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": f"x = {n}"}) + "\n" for n in range(8)))
    words = [
        "data=jsonl",
        "data.path=rows.jsonl",
        "model.hidden=32",
        "model.layers=1",
        "run.steps=4",
        "run.save_steps=2",
    ]
    done = subprocess.run(
        [warm_python, "-c", LIMITED, *words, "run.dir=run", "-q"], cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-3:][0].startswith("error: `run.dir`: cannot write `run/checkpoint-2`: "), (
        done.stderr
    )
    assert "Traceback" not in done.stderr
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert not [name for name in left if name.startswith(("checkpoint", "."))]
    assert "metrics.jsonl" in left


def test_what_a_killed_run_was_writing_is_cleared_away(bench: Any, tmp_path: Path) -> None:
    for name in (".partial/checkpoint-2", ".stale"):
        (tmp_path / "run" / name).mkdir(parents=True)
        (tmp_path / "run" / name / "model.safetensors").write_bytes(b"half")
    train(bench.plan(run_resume="auto"), bench.Hooks(), tmp_path / "run")
    assert not list((tmp_path / "run").glob(".*"))


# ------------------------------------------------------------------------------------------------ two runs in one folder

HOLDER = """
import sys, time, pathlib
from memcfg.files import claimed
with claimed(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_runs_cannot_use_one_folder_and_a_killed_one_holds_nothing(bench: Any, tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert message(bench, tmp_path, bench.Hooks(), run_resume="auto") == (
        f"`run.dir`: another run is using `{tmp_path}`\n  wait for it, or choose another `run.dir`"
    )
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with claimed(tmp_path), claimed(tmp_path):
        assert (tmp_path / ".lock").exists()
    assert not (tmp_path / ".lock").exists()


# ------------------------------------------------------------------------------------------------ signals


def test_asked_once_the_step_is_saved_and_asked_twice_it_stops_at_once(bench: Any, tmp_path: Path) -> None:
    class Asked(bench.Objective):  # type: ignore[name-defined, misc]
        """Gets signals in the middle of its third step."""

        def __init__(self, times: int) -> None:
            self.times, self.steps = times, 0

        def loss_sum(self, model: Any, batch: Any) -> torch.Tensor:
            self.steps += model.training and torch.is_grad_enabled() and batch.source is not None
            if self.steps == 3:
                for _ in range(self.times):
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.01)
            return super().loss_sum(model, batch)

    def interrupted(name: str, times: int) -> list[str]:
        told = bench.Told()
        with pytest.raises(KeyboardInterrupt):
            train(
                bench.plan(run_steps=9),
                bench.Hooks(objective=lambda plan: Asked(times)),
                tmp_path / name,
                reporter=told,
            )
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return [entry[1] for entry in told.said if entry[0] == "note"]

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stopping = "stopping after this step, which is saved; ask again to stop at once"
        once = f"saved `{tmp_path / 'once' / 'checkpoint-3'}`: `run.dir={tmp_path / 'once'} run.resume=auto` goes on from it"
        assert interrupted("once", 1) == [stopping, once]
        assert checkpoint.found(tmp_path / "once")[0][-1].step == 3
        assert interrupted("twice", 2) == [stopping]
        assert not list((tmp_path / "twice").glob("checkpoint*"))
    finally:
        signal.signal(signal.SIGINT, before)
