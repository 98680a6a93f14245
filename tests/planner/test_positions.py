"""How many positions a model has, and a planner that offers no longer rows than those."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memcfg.cli import main
from memcfg.planner.depth import positions

pytestmark = pytest.mark.torch

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 1000,
}  # fmt: skip


def of(**text: Any) -> int | None:
    return positions(SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(**text))))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({}, None),
        ({"max_position_embeddings": None}, None),
        # YaRN states what it stretches, and by how much
        ({"max_position_embeddings": 32768, "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, 131072),
        ({"max_position_embeddings": 32768, "rope_parameters": {"full_attention": {
            "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32768}}}, 65536),
        # Llama 3's factor is one of wave lengths, not of positions
        ({"max_position_embeddings": 131072, "rope_parameters": {
            "rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 8192}}, 131072),
    ],
)  # fmt: skip
def test_positions_by_the_configuration(text: dict[str, Any], found: int | None) -> None:
    assert of(**text) == found


def test_no_longer_rows_are_offered_than_the_model_has_positions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    words = ["assume.device=h100", "model=hub", f"model.path={tmp_path}", "truncation.max_length=256", "budget=2gib"]
    words += ["plan.axes=[checkpointing]", "--quiet"]
    assert main(["plan", *words]) == 0
    assert "  longest `truncation.max_length`  1,000: the model has no more positions\n" in capsys.readouterr().out
    assert main(["plan", *words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["max_length"], data["max_length_bound"], data["max_length_ends_with"]) == (1000, 1000, "positions")
