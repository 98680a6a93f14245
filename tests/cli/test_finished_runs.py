"""A run that is finished already: nothing of what a run needs is asked for, and another run is no more of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcfg import RunError
from memcfg.commands.train import execute
from memcfg.compose import resolve
from memcfg.planfile import save
from memcfg.registry import load
from memcfg.report.console import Terminal

ONLINE = ["trainer=grpo", "generation.backend=vllm", "vllm.mode=server", "vllm.transfer=files",
          "vllm.server_url=http://127.0.0.1:9", "vllm.server_timeout=0.0", "run.steps=3", "run.resume=auto"]  # fmt: skip
REPORT = {"steps": 3, "tokens": 1, "wall_seconds": 1.0}


def finished(folder: Path, *more: str) -> Any:
    """A plan, and the folder of a run that finished as it says without `more`."""
    (folder / "model").mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(REPORT), encoding="utf-8")
    where = f"run.dir={folder}"
    save(resolve([*ONLINE, where]), folder / "resolved.yaml")
    return resolve([*ONLINE, where, *more])


def test_no_server_is_asked_for_where_nothing_is_left_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("memcfg.commands.train._tell", lambda report, terminal, title: told.append(title))
    plan = finished(tmp_path / "run")
    assert execute(plan, load(), Terminal()) == REPORT
    assert told == ["this run is finished already"]


def test_another_run_in_its_folder_is_refused(tmp_path: Path) -> None:
    plan = finished(tmp_path / "run", "run.learning_rate=0.5", "grpo.beta=0.1")
    with pytest.raises(RunError) as raised:
        execute(plan, load(), Terminal())
    assert str(raised.value) == (
        "`grpo.beta`: the finished run has `0.0`, this run `0.1`\n"
        "`run.learning_rate`: the finished run has `0.002`, this run `0.5`\n"
        "  give it the value of the finished run, or begin a new run: the result would be that of neither"
    )
