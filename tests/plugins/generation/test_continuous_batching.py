"""Continuous batching gives what padded batches give, leaves no trace on the model, and says what went wrong in its thread."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from memcfg_generation.continuous import ContinuousGeneration, page, pages
from memcfg_generation.sampler import TransformersGeneration, arguments
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

import memcfg
from memcfg import RunError
from memcfg.engine.execute import train
from memcfg.engine.forward import attach_head
from memcfg.registry import load

pytestmark = pytest.mark.torch

ENDS, PAD = [1, 4, 6, 11, 15, 20], 0
PROMPTS = [[5, 6, 7], [8], list(range(3, 24)), [5, 6, 7], [5, 6, 7, 9, 9], [21] * 40]
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
KINDS = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "grouped": (Qwen2Config, Qwen2ForCausalLM, {"num_key_value_heads": 1}),
}


def model(kind: str = "llama", **more: Any) -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config, cls, own = KINDS[kind]
    made = cls(config(vocab_size=24, initializer_range=0.4, **SIZES, **own, **more)).train()
    made.config.use_cache = False
    attach_head(made, None)  # type: ignore[arg-type]
    return made


def settings(temperature: float) -> dict[str, Any]:
    drawn = {"generation.temperature": temperature, "generation.top_p": 0.9, "generation.top_k": 10}
    return arguments({**drawn, "generation.repetition_penalty": 1.0})


def both(made: Any) -> tuple[TransformersGeneration, ContinuousGeneration]:
    given = (made, settings(0.0), ENDS, PAD)
    return TransformersGeneration(*given), ContinuousGeneration(*given, 0.5)


def state(made: Any) -> dict[str, Any]:
    return {
        "modes": [m.training for m in made.modules()], "use_cache": made.config.use_cache,
        "checkpointing": [getattr(m, "gradient_checkpointing", None) for m in made.modules()],
        "attention": made.config._attn_implementation, "generation": made.generation_config.to_dict(),
        "random": torch.get_rng_state().tolist(), "grad": torch.is_grad_enabled(), "threads": threading.active_count(),
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "attention"), [("llama", "sdpa"), ("llama", "eager"), ("grouped", "sdpa")])
def test_the_likeliest_tokens_are_those_of_padded_batches(kind: str, attention: str) -> None:
    made = model(kind, attn_implementation=attention)
    made.gradient_checkpointing_enable()
    before = state(made)
    plain, continuous = (sampler.generate(PROMPTS * 2, seed=3, limit=9) for sampler in both(made))
    assert continuous == plain
    assert len({len(sample.ids) for sample in plain}) > 1
    assert any(sample.finished for sample in plain)
    assert state(made) == before


def test_a_transformers_of_other_names_is_kept_off_flash_kernels_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import memcfg_generation.continuous as continuous

    monkeypatch.setattr(continuous, "knows", lambda: {"block_size"})  # as 5.17 has it, which 5.24 still takes
    made = model(attn_implementation="eager")
    before, kernels = state(made), set()
    made.model.register_forward_pre_hook(lambda *_: kernels.add(made.config._attn_implementation))
    plain, sampler = both(made)
    assert sampler.generate(PROMPTS, seed=3, limit=4) == plain.generate(PROMPTS, seed=3, limit=4)
    assert kernels == {"paged|eager", "eager"}
    assert state(made) == before


def test_weights_that_moved_and_adapters_are_sampled_from() -> None:
    from peft import LoraConfig, get_peft_model

    made = get_peft_model(model(), LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    plain, continuous = both(made)
    first = continuous.generate(PROMPTS, seed=3, limit=6)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    second = continuous.generate(PROMPTS, seed=3, limit=6)
    assert second == plain.generate(PROMPTS, seed=3, limit=6)
    assert second != first


def test_the_same_seed_gives_the_same_completions_and_another_others() -> None:
    made = ContinuousGeneration(model(), settings(1.0), ENDS, PAD, 0.5)
    one, other = (made.generate(PROMPTS * 3, seed=seed, limit=6) for seed in (3, 4))
    assert made.generate(PROMPTS * 3, seed=3, limit=6) == one != other
    assert len({tuple(sample.ids) for sample in one}) > len(PROMPTS)


def test_without_an_end_token_all_hit_the_limit() -> None:
    made = model()
    made.config.eos_token_id = 5
    found = ContinuousGeneration(made, settings(1.0), [], PAD, 0.5).generate(PROMPTS, seed=3, limit=4)
    assert [(len(sample.ids), sample.finished) for sample in found] == [(4, False)] * len(PROMPTS)


def test_no_prompts_and_empty_ones() -> None:
    made = both(model())[1]
    assert made.generate([], seed=1, limit=4) == []
    with pytest.raises(RunError) as caught:
        made.generate([[5], []], seed=1, limit=4)
    assert str(caught.value) == "`data.path`: a prompt is empty: there is nothing to complete"


def test_what_fails_in_the_thread_is_told_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    before = state(made)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the disk is gone\nand more")

    monkeypatch.setattr(made.model.layers[1].mlp, "forward", broken)
    with pytest.raises(RunError) as caught:
        both(made)[1].generate(PROMPTS, seed=3, limit=4)
    assert str(caught.value) == (
        "`generation.continuous_batching`: Transformers' continuous batching failed: the disk is gone\n"
        "  generation.continuous_batching=false"
    )
    assert state(made) == before


def test_a_cache_without_room_is_told() -> None:
    made = ContinuousGeneration(model(), settings(0.0), ENDS, PAD, 1e-9)
    with pytest.raises(RunError) as caught:
        made.generate(PROMPTS, seed=3, limit=4)
    assert str(caught.value) == (
        "`generation.cache_share`: the share 1e-09 of the memory that is free has no room for the cache of 6 prompts\n"
        "  a larger one, or generation.continuous_batching=false"
    )


@pytest.mark.parametrize(
    ("prompts", "limit", "size", "count"),
    [([[1] * 3], 5, 16, 2), ([[1] * 20, [1]], 20, 48, 3), ([[1] * 600, [1]], 100, 256, 5)],
)
def test_pages_hold_every_completion_at_its_longest(prompts: Any, limit: int, size: int, count: int) -> None:
    assert (page(prompts, limit), pages(prompts, limit)) == (size, count)


def test_a_run_says_how_it_sampled(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Write {'so ' * i}."}) + "\n" for i in range(8)), encoding="utf-8")
    plan = memcfg.resolve([
        "trainer=grpo", "grpo.num_generations=2", "model.hidden=32", "model.layers=2", "run.steps=1", "run.batch_size=4",
        "data=jsonl", f"data.path={file}", "generation.max_new_tokens=5", "rewards.functions=[finished]",
        "generation.continuous_batching=true",
    ])  # fmt: skip
    train(plan, load().hooks(plan), tmp_path / "run")
    seen = json.loads((tmp_path / "run" / "effective.json").read_text(encoding="utf-8"))[
        "generation.continuous_batching"
    ]
    assert seen == {
        "resolved": True, "effective": True, "evidence": "4 prompts of the trained model were queued in 1 rounds",
    }  # fmt: skip
