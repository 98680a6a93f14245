"""GRPO in two processes: the same completions, rewards and losses, however the weights are spread while it samples.

Each process samples with a seed of its own, so one process is no yardstick here; replicas are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.distributed]

GRPO = (
    "trainer=grpo", "model.hidden=32", "model.layers=2", "run.steps=2", "run.log_steps=1", "run.batch_size=4",
    "generation.max_new_tokens=12", "grpo.num_generations=4",
)  # fmt: skip
SPREAD = {
    "ddp": ["distributed=ddp"],
    "fsdp2": ["distributed=fsdp2"],
    "zero2": ["distributed=zero2"],
    "gathered": ["distributed=zero3", "zero3.gather_for_generation=true"],
    "sharded": ["distributed=zero3", "zero3.gather_for_generation=false"],
    **{f"{name} aside": [f"distributed={name}", "offload.phases=true"] for name in ("fsdp2", "zero2", "zero3")},
}


def test_the_same_completions_rewards_and_losses(
    tmp_path: Path, in_processes: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMCFG_OFFLOAD_REHEARSAL", "1")
    found = in_processes(tmp_path / "two", [{"name": n, "overrides": [*GRPO, *o]} for n, o in SPREAD.items()], 2)
    plain = found["ddp"]
    for name in (name.replace(" ", "_") for name in SPREAD):
        assert found[name]["loss"] == pytest.approx(plain["loss"], abs=1e-6), name
        rewards = {k: v for k, v in found[name]["more"].items() if "rewards" in k or "length" in k}
        assert rewards
        assert rewards == pytest.approx({k: plain["more"][k] for k in rewards}, abs=1e-6), name
    for name, value in (("gathered", True), ("sharded", False)):
        assert found[name]["effective"]["zero3.gather_for_generation"]["effective"] is value
    for name in SPREAD:
        if name.endswith("aside"):
            assert found[name.replace(" ", "_")]["effective"]["offload.phases"]["effective"] is True, name
