"""Sampling with the trained model: what comes back, and that every switch is as it was, whatever happened."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memcfg_generation.sampler import TransformersGeneration, arguments
from transformers import LlamaConfig, LlamaForCausalLM

from memcfg import RunError
from memcfg.engine.forward import attach_head

pytestmark = pytest.mark.torch

END, PAD = 1, 0
ARGUMENTS = ("generation.temperature", "generation.top_p", "generation.repetition_penalty")
PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [5, 6, 7]]


def model(**more: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=24, initializer_range=0.4, eos_token_id=END, pad_token_id=PAD, **sizes, **more)
    made = LlamaForCausalLM(config).train()
    made.config.use_cache = False
    attach_head(made, None)  # type: ignore[arg-type]
    return made


def sampler(made: Any, **more: Any) -> TransformersGeneration:
    usual = {"generation.temperature": 1.0, "generation.top_p": 1.0, "generation.top_k": 0}
    given = {**usual, "generation.repetition_penalty": 1.0, **more}
    return TransformersGeneration(made, arguments(given), [END], PAD)


def state(made: Any) -> dict[str, Any]:
    """Everything that sampling switches, and the random state."""
    return {
        "modes": [m.training for m in made.modules()],
        "checkpointing": [getattr(m, "gradient_checkpointing", None) for m in made.modules()],
        "use_cache": made.config.use_cache,
        "attention": made.config._attn_implementation,
        "generation": made.generation_config.to_dict(),
        "random": torch.get_rng_state().tolist(),
        "grad": torch.is_grad_enabled(),
    }


def test_a_completion_ends_with_its_end_token_or_at_the_limit() -> None:
    samples = sampler(model()).generate(PROMPTS * 4, seed=3, limit=6)
    assert len(samples) == 16
    assert any(s.finished for s in samples)
    assert any(not s.finished for s in samples)
    for sample in samples:
        assert 1 <= len(sample.ids) <= 6
        assert sample.finished == (sample.ids[-1] == END)
        assert END not in sample.ids[:-1]
        assert sample.logprobs is None
        assert sample.finished or len(sample.ids) == 6


def test_the_same_seed_gives_the_same_completions_and_another_others() -> None:
    made = sampler(model())
    one, other = (made.generate(PROMPTS, seed=seed, limit=6) for seed in (3, 4))
    assert made.generate(PROMPTS, seed=3, limit=6) == one != other


def test_padding_changes_nothing() -> None:
    """The likeliest tokens are those of each prompt alone, computed without a cache."""
    made = model()
    found = sampler(made, **{"generation.temperature": 0.0}).generate(PROMPTS, seed=None, limit=5)
    made.eval()
    for prompt, sample in zip(PROMPTS, found, strict=True):
        ids = list(prompt)
        while len(ids) < len(prompt) + 5 and (len(ids) == len(prompt) or ids[-1] != END):
            with torch.no_grad():
                ids.append(int(made(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        assert sample.ids == ids[len(prompt) :]


def test_what_the_weights_were_saved_with_does_not_shape_sampling() -> None:
    made = model()
    plain = sampler(made).generate(PROMPTS, seed=3, limit=6)
    made.generation_config.update(top_k=1, no_repeat_ngram_size=1, temperature=0.1)
    assert sampler(made).generate(PROMPTS, seed=3, limit=6) == plain
    assert made.generation_config.top_k == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_told_before_anything_is_drawn(number: float) -> None:
    """On a GPU drawing from them would end the process with an assertion of the device."""
    made = model()
    made.lm_head.weight.data[3] = number
    before = state(made)
    with pytest.raises(RunError) as error:
        sampler(made).generate(PROMPTS, seed=3, limit=4)
    assert str(error.value).startswith(
        "`run.learning_rate`: the model's logits are no finite numbers, so nothing can be sampled from it\n"
        "  a lower `run.learning_rate`"
    )
    assert state(made) == before


def test_a_cache_that_needs_a_package_says_so() -> None:
    given = {
        **arguments(dict.fromkeys(ARGUMENTS, 1.0) | {"generation.top_k": 0}),
        "cache_implementation": "quantized",
    }
    with pytest.raises(
        RunError, match=r"`generation\.cache`: Transformers' cache of this kind needs a package: You need"
    ):
        TransformersGeneration(model(), given, [END], PAD).generate(PROMPTS, seed=3, limit=4)


@pytest.mark.parametrize("reentrant", [True, False])
def test_everything_is_as_it_was_after_sampling_and_after_an_error(reentrant: bool) -> None:
    made = model(attention_dropout=0.1)
    made.gradient_checkpointing_enable({"use_reentrant": reentrant})
    made.model.layers[1].eval()  # not all modules are in one mode
    before = state(made)
    sampler(made).generate(PROMPTS, seed=3, limit=4)
    assert state(made) == before
    for error in (RuntimeError("no"), KeyboardInterrupt()):
        during: list[dict[str, Any]] = []

        def breaks(*_: Any, error: BaseException = error, seen: list[Any] = during, **__: Any) -> None:
            seen.append(state(made))
            raise error

        handle = made.model.layers[0].register_forward_pre_hook(breaks)
        with pytest.raises(type(error)):
            sampler(made).generate(PROMPTS, seed=3, limit=4)
        handle.remove()
        assert state(made) == before
        assert not any(during[0]["modes"])
        assert True not in during[0]["checkpointing"]
        assert during[0]["use_cache"] is True


def test_memory_techniques_change_no_completion() -> None:
    plain = sampler(model()).generate(PROMPTS, seed=3, limit=6)
    checkpointed = model(attention_dropout=0.5)
    checkpointed.gradient_checkpointing_enable({"use_reentrant": False})
    assert sampler(checkpointed).generate(PROMPTS, seed=3, limit=6) == plain


def test_an_adapter_takes_part() -> None:
    from peft import LoraConfig, get_peft_model

    made = get_peft_model(model(), LoraConfig(target_modules=["q_proj", "v_proj"], r=4))
    with_nothing = sampler(made).generate(PROMPTS, seed=3, limit=6)
    assert with_nothing == sampler(model()).generate(PROMPTS, seed=3, limit=6)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "lora_B" in name:
                weight.add_(0.5)
    assert sampler(made).generate(PROMPTS, seed=3, limit=6) != with_nothing


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(RunError) as caught:
        sampler(model()).generate([[5], []], seed=0, limit=2)
    assert str(caught.value) == "`data.path`: a prompt is empty: there is nothing to complete"
