"""`memcfg check` from the command line: what it prints, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from memcfg.cli import main

pytestmark = pytest.mark.torch

TINY = ["model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.layers=2", "run.batch_size=2"]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps({"text": f"line {i} of a text"}) + "\n" for i in range(6)))
    monkeypatch.chdir(tmp_path)
    return ["check", "data=jsonl", f"data.path={file}", *TINY]


def test_what_was_seen_as_text(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "peft=lora"]) == 0
    out = capsys.readouterr().out
    assert "the first step is as planned" in out
    assert "  accumulation  one micro-batch or two: the same loss over" in out
    assert "peft.method=lora: " in out
    assert os.listdir() == ["data.jsonl"], "no run folder is made"


def test_what_was_seen_as_data(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["ok"] is True
    assert seen["effective"]["checkpointing.mode"]["effective"] == "full"
    assert seen["canaries"]["supervised"].endswith("targets in the first step")


def test_a_plan_that_does_not_hold(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "peft=lora", "peft.targets=[q_prog]"]) == 1
    assert "did you mean `q_proj`" in capsys.readouterr().err
    assert main([*words, "--json", "peft=lora", "peft.targets=[q_prog]"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
