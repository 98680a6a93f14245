"""Whole runs of the program on a GPU, where other kernels, types and layouts are the defaults than on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memcfg.cli import main

pytestmark = [pytest.mark.torch, pytest.mark.gpu]

RUNS = {
    "defaults": [],
    "packed": ["packing=bfd_split"],
    "padding-free": ["padding_free=on"],
    "through cuDNN": ["attention.cudnn=true"],
    "whole logits": ["loss=nll"],
    "adapters": ["peft=lora"],
    "offload": ["offload=checkpoint_inputs"],
    "preferences": ["trainer=dpo"],
    "rewards": ["trainer=reward"],
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_and_its_peak_was_foreseen(name: str, tmp_path: Path) -> None:
    assert main([*RUNS[name], "run.steps=3", f"run.dir={tmp_path / 'run'}", "--quiet"]) == 0
    memory = json.loads((tmp_path / "run" / "memory.json").read_text(encoding="utf-8"))
    assert memory["measured"]["source"] == "cuda allocated"
    assert memory["measured"]["peak_bytes"] == pytest.approx(memory["predicted"]["peak_bytes"], rel=0.05)
