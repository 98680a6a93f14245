"""A mixture of experts: its products are of groups of rows, so that what a step needs does not depend on who is routed where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from memcfg.compose import resolve
from memcfg.plan import Plan
from memcfg.planner.batches import Tokenizer
from memcfg.registry import Registry

pytestmark = pytest.mark.torch

Grown = Callable[[Plan], Any]
SIZES = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "num_experts_per_tok": 2,
}  # fmt: skip


def qwen() -> Any:
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, head_dim=16, moe_intermediate_size=32, num_experts=8))


def mixtral() -> Any:
    return MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=8))


@pytest.mark.parametrize(
    ("model", "given"),
    [(qwen, "model.dtype=bfloat16"), (qwen, "model.dtype=float32"), (mixtral, "model.dtype=float32 loss=nll")],
)
def test_a_step_of_experts_grows_as_predicted(
    model: Callable[[], Any], given: str, tmp_path: Path, simulated: Grown, measured: Grown, registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    torch.manual_seed(0)
    model().save_pretrained(tmp_path)
    sizes = ["moe.aux=false", "truncation.max_length=96", "run.batch_size=2"]
    plan = resolve(["model=hub", f"model.path={tmp_path}", *sizes, *given.split()], registry=registry)
    monkeypatch.setattr(type(registry.hooks(plan)), "load_tokenizer", lambda self, plan: Tokenizer(dict), raising=False)
    assert simulated(plan).peak == pytest.approx(measured(plan), rel=1e-3)
