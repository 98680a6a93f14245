"""What is said when a training runs out of memory, and on a GPU whether it is true."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memcfg.cli import main
from memcfg.commands.fit import available
from memcfg.errors import OutOfMemory

pytestmark = pytest.mark.torch

TINY = ("model.hidden=64", "model.layers=2", "truncation.max_length=64", "run.steps=1", "run.batch_size=2")
MIB = 2**20


def test_the_error_comes_with_a_breakdown_and_the_sets_that_would_have_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OutOfMemory("out of memory in step 1: full", 5 * MIB, 6 * MIB, [[64], [32]], room_bytes=7 * MIB)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("memcfg.engine.execute.train", full)
    code = main([*TINY, "run.dir=here", "checkpointing=none"])
    said = capsys.readouterr().err
    assert code == 1
    for part in (
        "until then at most 5 MiB were in use (6 MiB reserved); the step needs ",
        "at the peak (",
        "peak in each",
    ):
        assert part in said
    assert "what fits 7 MiB on cpu\n" in said
    assert said.rstrip().endswith(
        "error: out of memory in step 1: full\n  `memcfg plan` lists the technique sets that fit"
    )
    assert not (tmp_path / "here").exists()


def test_what_cannot_be_explained_leaves_the_error_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OutOfMemory("out of memory in step 1: full", 5 * MIB, 6 * MIB)

    def broken(*_: Any, **__: Any) -> None:
        raise NotImplementedError("no such kernel on `meta`")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("memcfg.engine.execute.train", full)
    monkeypatch.setattr("memcfg.planner.simulate.record", broken)
    assert main(list(TINY)) == 1
    said = capsys.readouterr().err
    assert "no breakdown: no such kernel on `meta`\n" in said
    assert "error: out of memory in step 1: full\n" in said


@pytest.mark.parametrize(
    ("budget", "room", "card", "left"),
    [
        (None, None, None, None),
        (None, None, 80, 80),
        (24, None, 80, 24),
        (24, 10, 80, 11),  # another process has most of it; what lies outside the allocator is counted by budgets
        (None, 79, 80, 80),
    ],
)
def test_what_a_run_could_have_used(budget: int | None, room: int | None, card: int | None, left: int | None) -> None:
    error = OutOfMemory("full", 1, 2, room_bytes=room)
    machine: Any = SimpleNamespace(memory=card, outside=1)
    assert available(error, {"budget.bytes": budget}, machine) == left  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ on a GPU

SHAPE = (
    "model=shape", "model.preset=smollm2-135m", "loss=nll", "run.batch_size=8", "truncation.max_length=1024",
    "run.steps=2", "packing=wrapped",
)  # fmt: skip


@pytest.mark.gpu
def test_calibration_is_kept_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from memcfg.compose import resolve
    from memcfg.planner.hosts import calibration_file, machine_of

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["calibrate", "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert calibration_file() == tmp_path / "memcfg" / "machine.json"
    assert json.loads(calibration_file().read_text(encoding="utf-8")) == told
    assert told["calibrated"] is True
    assert 1e12 < told["matmul"] < 1e16
    assert 1e11 < told["bandwidth"] < 1e14
    assert 1e9 < told["host_copy"] < 1e12
    assert 100 * MIB < told["outside"] < 4096 * MIB
    found = machine_of(resolve(["run.steps=1"]))
    assert found.to_dict() == told


@pytest.mark.gpu
def test_what_is_said_to_fit_after_running_out_of_memory_does_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    import memcfg.report.ladder as texts

    ladders: list[Any] = []
    shown = texts.show_ladder
    monkeypatch.setattr(
        texts, "show_ladder", lambda ladder, inverse: (ladders.append(ladder), shown(ladder, inverse))[1]
    )
    monkeypatch.chdir(tmp_path)
    assert main(["predict", "--json", "--quiet", *SHAPE, "checkpointing=none"]) in (0, 2)
    needed = json.loads(capsys.readouterr().out)["smallest_bytes"]
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.6 * needed / total)
    try:
        assert main([*SHAPE, "checkpointing=none", "run.dir=first"]) == 1
        said = capsys.readouterr().err
        assert "error: out of memory in step 1: CUDA out of memory" in said
        assert "at the peak (" in said
        assert len(ladders) == 1
        assert ladders[0].rungs
        torch.cuda.empty_cache()
        words = [*SHAPE, "checkpointing=none", *ladders[0].rungs[0].set.overrides]
        assert main([*words, "run.dir=second"]) == 0
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    memory = json.loads((tmp_path / "second" / "memory.json").read_text(encoding="utf-8"))
    assert memory["predicted"]["peak_bytes"] > 0
    assert "(predicted " in capsys.readouterr().out
