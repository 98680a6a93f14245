"""Whole runs of the program on a GPU, where other kernels, types and layouts are the defaults than on a CPU."""

from __future__ import annotations

import gc
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
    "marked": ["trainer=kto"],
    "sampled": ["trainer=grpo", "generation.max_new_tokens=16"],
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_and_its_peak_was_foreseen(name: str, tmp_path: Path) -> None:
    gc.collect()  # what an earlier run of this process left in cycles would be measured too
    assert main([*RUNS[name], "run.steps=3", f"run.dir={tmp_path / 'run'}", "--quiet"]) == 0
    memory = json.loads((tmp_path / "run" / "memory.json").read_text(encoding="utf-8"))
    assert memory["measured"]["source"] == "cuda allocated"
    assert memory["measured"]["step_bytes"] == pytest.approx(memory["predicted"]["peak_bytes"], rel=0.03)
    assert memory["measured"]["peak_bytes"] >= memory["measured"]["step_bytes"]


def test_what_lies_between_steps_is_told_apart() -> None:
    import torch

    from memcfg.engine.memory import Peak, reset_peak

    reset_peak("cuda")
    peak, before = Peak("cuda"), torch.cuda.memory_allocated()
    _take(8)
    with peak.between_steps():
        _take(32)
    _take(16)
    found = peak.measured()
    assert (found["step_bytes"] - before, found["peak_bytes"] - before) == (16 << 20, 32 << 20)
    assert found["reserved_bytes"] >= found["peak_bytes"]


def _take(mib: int) -> None:
    import torch

    torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
