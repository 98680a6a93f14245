"""The embedded run of a trainer that samples, as a user starts it: its reward rises."""

from __future__ import annotations

from pathlib import Path

import pytest

import memcfg
from memcfg.engine.execute import train
from memcfg.registry import load

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_the_reward_rises(tmp_path: Path) -> None:
    """Nothing but the trainer is chosen, save that no prompt is held out, every step is logged, and 56 steps are enough."""
    import torch

    torch.set_num_threads(1)
    plan = memcfg.resolve(["trainer=grpo", "data.eval_rows=null", "run.log_steps=1", "run.steps=56"])
    report = train(plan, load().hooks(plan), tmp_path / "run")
    assert report.steps == 56
    assert report.reward_first is not None
    assert report.reward_last is not None
    assert report.reward_last >= 1.5 * report.reward_first
    assert len(report.completions) == 8
