"""On a GPU: a reward model judges documents of one row, completions are batched continuously, the head is float32 and gives
entropies, in one step of a bfloat16 policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import memcfg
from memcfg.engine.execute import train
from memcfg.registry import load

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gpu,
]


def ran(folder: Path, *overrides: str) -> dict[str, Any]:
    plan = memcfg.resolve([*overrides, "model.hidden=64", "model.layers=2", "model.dtype=bfloat16", "run.log_steps=1"])
    train(plan, load().hooks(plan), folder)
    found: dict[str, Any] = json.loads((folder / "effective.json").read_text(encoding="utf-8"))
    return found


def test_one_step_of_everything(tmp_path: Path) -> None:
    ran(tmp_path / "judge", "trainer=reward", "run.steps=1", "run.eval_steps=null")
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Write {'so ' * i}."}) + "\n" for i in range(16)), encoding="utf-8")
    seen = ran(
        tmp_path / "policy", "trainer=grpo", "run.steps=2", "run.batch_size=8", "grpo.num_generations=4", "data=jsonl",
        f"data.path={file}", "rewards.functions=[]", f"rewards.models=[{tmp_path}/judge/model]", "padding_free=on",
        "generation.max_new_tokens=16", "generation.continuous_batching=true", "grpo.head_fp32=true",
        "grpo.entropy_coef=0.01", "grpo.top_entropy_quantile=0.5",
    )  # fmt: skip
    assert seen["generation.continuous_batching"]["effective"] is True
    assert seen["grpo.head_fp32"]["effective"] is True
    assert "8 at a time in the plan's layout" in seen["rewards.models"]["evidence"]


def test_continuous_batching_takes_the_likeliest_tokens() -> None:
    from memcfg_generation.continuous import ContinuousGeneration
    from memcfg_generation.sampler import TransformersGeneration
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    made = LlamaForCausalLM(LlamaConfig(vocab_size=200, initializer_range=0.3, **sizes)).cuda()
    settings = {"do_sample": False, "repetition_penalty": 1.0, "cache_implementation": None}
    prompts = [list(range(5, 5 + size)) for size in (1, 7, 40, 40, 3, 120)]
    plain = TransformersGeneration(made, settings, [7], 0).generate(prompts, seed=1, limit=24)
    continuous = ContinuousGeneration(made, settings, [7], 0, 0.2)
    assert continuous.generate(prompts, seed=1, limit=24) == plain


def test_recorded_tokens_are_the_likeliest_ones_with_moving_weights(tmp_path: Path) -> None:
    """Every round records anew, and a replay reads the weights as they are."""
    from memcfg_generation.graphs import GraphedGeneration
    from memcfg_generation.sampler import TransformersGeneration
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": 16,
    }
    made = Qwen3ForCausalLM(Qwen3Config(vocab_size=200, initializer_range=0.3, num_key_value_heads=2, **sizes)).cuda()
    settings = {"do_sample": False, "repetition_penalty": 1.0, "cache_implementation": None}
    plain, graphed = TransformersGeneration(made, settings, [7], 0), GraphedGeneration(made, settings, [7], 0)
    for lengths in ((1, 7, 40, 40, 3, 120), (5, 90)):
        prompts = [list(range(5, 5 + size)) for size in lengths]
        assert graphed.generate(prompts, seed=1, limit=24) == plain.generate(prompts, seed=1, limit=24)
        with torch.no_grad():
            made.lm_head.weight.add_(torch.randn_like(made.lm_head.weight), alpha=0.3)
    assert graphed.replayed > 20
    seen = ran(
        tmp_path, "trainer=grpo", "run.steps=2", "run.batch_size=8", "grpo.num_generations=4", "generation.graphs=true",
        "generation.max_new_tokens=16", "offload.phases=true",
    )  # fmt: skip
    assert seen["generation.graphs"]["effective"] is True
    assert " 0 tokens" not in seen["generation.graphs"]["evidence"]
