"""A token's work that is recorded once and repeated gives the completions of the plain way, and what cannot be recorded is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from memcfg_generation.graphs import GraphedGeneration
from memcfg_generation.sampler import TransformersGeneration, arguments
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from memcfg import RunError
from memcfg.engine.forward import attach_head

pytestmark = pytest.mark.torch

ENDS, PAD = [1], 0
PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [5, 6, 7]]
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def model(kind: Any = LlamaForCausalLM, config: Any = LlamaConfig, **more: Any) -> Any:
    torch.manual_seed(0)
    made = kind(config(vocab_size=24, initializer_range=0.4, **SIZES, **more)).train()
    attach_head(made, None)  # type: ignore[arg-type]
    return made


def settings(temperature: float = 1.0) -> dict[str, Any]:
    drawn = {"generation.temperature": temperature, "generation.top_p": 1.0, "generation.top_k": 0}
    return arguments({**drawn, "generation.repetition_penalty": 1.0})


class Tape:
    """Records as a GPU does: a call is kept with the tensors that it reads, is not run, and writes its result to one place."""

    def __init__(self) -> None:
        self.recorded, self.replayed = 0, 0

    def __call__(self, call: Callable[[], Any]) -> Callable[[], Any]:
        self.recorded += 1
        place: list[Any] = []

        def replay() -> Any:
            self.replayed += 1
            result = call()
            if not place:
                place.append(result)
            place[0].logits.copy_(result.logits)
            return place[0]

        return replay


def graphed(made: Any, temperature: float, tape: Tape, monkeypatch: pytest.MonkeyPatch) -> GraphedGeneration:
    """On a CPU, where Transformers would not ask for a compiled forward."""
    monkeypatch.setattr(
        type(made), "_valid_auto_compile_criteria", lambda self, inputs, config: not config.disable_compile
    )
    return GraphedGeneration(made, settings(temperature), ENDS, PAD, record=tape)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_completions_are_those_of_the_plain_way(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    made, tape = model(), Tape()
    before = dict(vars(made))
    plain = TransformersGeneration(made, settings(temperature), ENDS, PAD)
    found = graphed(made, temperature, tape, monkeypatch)
    for prompts, seed in ((PROMPTS, 3), (PROMPTS[:2], 4)):
        wanted = plain.generate(prompts, seed=seed, limit=9)
        assert found.generate(prompts, seed=seed, limit=9) == wanted
        assert max(len(sample.ids) for sample in wanted) > 4  # so that tokens are replayed
    assert (tape.recorded, tape.replayed) == (2, found.replayed), (
        "each round has a cache of its own, so a recording too"
    )
    assert found.replayed > 8
    assert vars(made) == before, "nothing is left on the model"


def test_a_round_of_one_or_two_tokens_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made, tape = model(), Tape()
    found = graphed(made, 0.0, tape, monkeypatch)
    for limit in (1, 2):
        assert all(len(sample.ids) <= limit for sample in found.generate(PROMPTS, seed=1, limit=limit))
    assert (tape.recorded, found.replayed) == (0, 0)


def test_a_cache_that_keeps_its_place_as_a_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model(MistralForCausalLM, MistralConfig, sliding_window=8, num_key_value_heads=1)
    found = graphed(made, 0.0, Tape(), monkeypatch)
    with pytest.raises(RunError) as error:
        found.generate(PROMPTS, seed=1, limit=6)
    assert str(error.value) == (
        "`generation.graphs`: a token is recorded where all layers have a plain static cache, and these do not: "
        "`StaticSlidingWindowLayer`\n  generation.graphs=false"
    )
    assert "get_compiled_call" not in vars(made)


def test_a_model_without_a_forward_for_single_tokens_is_refused() -> None:
    """Here because Transformers asks for none on a CPU."""
    with pytest.raises(RunError, match="is sampled from without a forward of its own for single tokens"):
        GraphedGeneration(model(), settings(), ENDS, PAD, record=Tape()).generate(PROMPTS, seed=1, limit=6)


def test_a_static_cache_alone_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round has another size: Transformers would compile the model anew for each."""
    made, asked = model(), []
    monkeypatch.setattr(
        type(made), "_valid_auto_compile_criteria", lambda self, inputs, config: asked.append(config) or False
    )
    TransformersGeneration(made, settings() | {"cache_implementation": "static"}, ENDS, PAD).generate(
        PROMPTS, seed=1, limit=3
    )
    assert [config.disable_compile for config in asked] == [True]
