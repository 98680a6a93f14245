"""Recipes choose options of other groups, and resolve."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import memcfg
from memcfg.files import conf_root

GPU = ("assume.device=h100", "assume.vllm.installed=true")

CASES = {
    "short_sft": {"packing.strategy": "bfd", "padding_free.enabled": True},
    "long_context": {
        "truncation.max_length": 32768, "truncation.mode": "keep_start", "padding_free.enabled": True,
        "offload.activations": "checkpoint_inputs",
    },
    "online_rl": {
        "trainer.name": "grpo", "generation.backend": "vllm", "vllm.mode": "colocate", "vllm.sleep": True,
        "zero3.gather_for_generation": True,
    },
    "large_vocab": {"loss.kernel": "torch", "loss.type": "chunked_nll"},
}  # fmt: skip


@pytest.mark.parametrize("recipe", CASES)
def test_recipe(recipe: str) -> None:
    plan = memcfg.resolve([f"recipe={recipe}", *GPU])
    assert {key: plan[key] for key in CASES[recipe]} == CASES[recipe]


def test_every_recipe_is_here_and_gives_its_reason() -> None:
    files = {path.stem: path for path in (conf_root() / "recipe").glob("*.yaml")}
    assert files.keys() == CASES.keys()
    for path in files.values():
        assert ":" in reason(path), path


def reason(path: Path) -> str:
    """The comment at the head of the file: what it is for, a colon, why these choices."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# @package _global_"
    assert isinstance(yaml.safe_load("\n".join(lines)), dict)
    return " ".join(line.removeprefix("# ") for line in lines[1:] if line.startswith("#"))


def test_the_command_line_wins_over_a_recipe() -> None:
    plan = memcfg.resolve(["recipe=online_rl", "trainer=rloo", "vllm.sleep=false", *GPU])
    assert (plan["trainer.name"], plan["vllm.sleep"], plan["vllm.mode"]) == ("rloo", False, "colocate")
