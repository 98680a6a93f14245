"""Against an engine that records what is asked of it and remembers the weights it was given: what is generated comes from the
trained model's weights of that very moment, always."""

from __future__ import annotations

import hashlib
from typing import Any

import peft
import pytest
import torch
from memcfg_vllm.colocated import Colocated
from memcfg_vllm.generation import VLLMGeneration
from memcfg_vllm.phases import Phases
from memcfg_vllm.weights import current

from memcfg import RunError
from memcfg.rollouts import Sample

pytestmark = pytest.mark.torch

DRAWN = {"temperature": 0.9, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "regex": None}


def digest(weights: Any) -> str:
    found = hashlib.sha256()
    for name, tensor in weights:
        found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()


class Recording:
    """An engine with memory like vLLM's: what sleeps is lost, and what is woken holds nothing."""

    def __init__(self, *, sleeps: bool) -> None:
        self.calls: list[str] = []
        self.held: str | None = None
        self.seen: list[str | None] = []
        self.requests: list[dict[str, Any]] = []
        self.forgets, self.fails = True, False

    def sleep(self) -> None:
        self.calls.append("sleep")
        self.held = None

    def wake(self, part: str) -> None:
        self.calls.append(f"wake {part}")

    def load(self, weights: Any) -> None:
        self.calls.append("load")
        if self.fails:
            next(iter(weights))
            self.held = "half"
            raise RuntimeError("no room\nfor layer 3")
        self.held = digest(weights)

    def forget(self) -> bool:
        self.calls.append("forget")
        return self.forgets

    def complete(self, prompts: Any, requests: Any) -> list[Sample | None]:
        self.calls.append("generate")
        self.seen.append(self.held)
        self.requests += requests
        return [Sample([5, 2], True, [-0.5, -0.1]) for _ in prompts]

    def close(self) -> None:
        self.calls.append("close")


def made(sleeps: bool) -> tuple[VLLMGeneration, Recording]:
    engine = Recording(sleeps=sleeps)
    return VLLMGeneration(Colocated(engine), Phases(sleeps=sleeps), DRAWN, [2], longest=12), engine


def a_round(generation: VLLMGeneration, model: Any, times: int = 1) -> None:
    """As the engine runs one."""
    try:
        generation.wake("weights")
        generation.sync(model)
        generation.wake("cache")
        for _ in range(times):
            generation.generate([[1, 2], [1, 2], [3]], seed=7, limit=4)
    finally:
        generation.sleep()


def model(bench: Any, kind: str) -> Any:
    plain = bench.model(0).float()
    return plain if kind == "full" else peft.get_peft_model(plain, peft.LoraConfig(r=2, target_modules=["q_proj"]))


def update(trained: Any) -> None:
    with torch.no_grad():
        for parameter in trained.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("sleeps", [True, False])
def test_every_completion_comes_from_the_weights_of_its_step(bench: Any, kind: str, sleeps: bool) -> None:
    generation, engine = made(sleeps)
    trained, expected = model(bench, kind), []
    for _ in range(3):
        for _ in range(2):  # two rounds in a step, the first of two generations
            a_round(generation, trained, times=2)
            expected += [digest(current(trained))] * 2
        update(trained)
    assert engine.seen == expected
    assert len(set(expected)) == 3, "the weights differ between steps"
    each = ["wake weights", "load", "forget", "wake cache", "generate", "generate", "sleep"]
    awake = ["load", "forget", "generate", "generate"]
    assert engine.calls == (each if sleeps else awake) * 6
    assert (generation.loads, generation.naps, generation.completions) == (6, 6 if sleeps else 0, 36)


def test_after_a_resume_the_first_round_loads_too(bench: Any) -> None:
    """A resumed run has an engine that never saw the weights of its checkpoint."""
    trained = model(bench, "full")
    update(trained)
    generation, engine = made(True)
    with pytest.raises(RunError, match="asked to generate while its weights are asleep"):
        generation.generate([[1]], seed=0, limit=1)
    a_round(generation, trained)
    assert engine.seen == [digest(current(trained))]


@pytest.mark.parametrize("sleeps", [True, False])
def test_weights_that_were_trained_since_are_refused(bench: Any, sleeps: bool) -> None:
    generation, engine = made(sleeps)
    trained = model(bench, "lora")
    generation.wake("weights")
    generation.sync(trained)
    generation.wake("cache")
    update(trained)
    with pytest.raises(RunError, match="while its weights are those of an earlier round"):
        generation.generate([[1]], seed=0, limit=1)
    assert engine.seen == []


def test_a_load_that_fails_is_one_clear_error_and_must_be_done_again(bench: Any) -> None:
    generation, engine = made(True)
    trained, engine.fails = model(bench, "full"), True
    with pytest.raises(RunError) as caught:
        a_round(generation, trained)
    assert str(caught.value) == (
        "`generation.backend`: vLLM failed taking over the weights: RuntimeError: no room for layer 3"
    )
    assert engine.calls == ["wake weights", "load", "sleep"]
    engine.fails = False
    a_round(generation, trained)
    assert engine.seen == [digest(current(trained))]


def test_a_cache_of_older_weights_that_cannot_be_dropped_stops_the_run(bench: Any) -> None:
    generation, engine = made(False)
    engine.forgets = False
    with pytest.raises(RunError, match="still holds what older weights computed"):
        a_round(generation, model(bench, "full"))
    assert engine.seen == []


def test_equal_prompts_have_seeds_of_their_own(bench: Any) -> None:
    generation, engine = made(False)
    a_round(generation, model(bench, "full"))
    assert [r["seed"] for r in engine.requests] == [7, 8, 9]
    assert {name: engine.requests[0][name] for name in ("max_tokens", "n", "logprobs", "stop_token_ids")} == {
        "max_tokens": 4, "n": 1, "logprobs": 0, "stop_token_ids": [2],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("prompts", "limit", "answer", "message"),
    [
        ([[1] * 9], 4, None, "may have 13 tokens, and vLLM was set up for 12"),
        ([[1], []], 4, None, "a prompt is empty"),
        ([[1], [2]], 4, [Sample([2], True, [-0.1]), None], "vLLM completed 1 of 2 prompts"),
        ([[1]], 4, [Sample([5, 2], True, [-0.1])], "without a log-probability for each of its tokens"),
        ([[1]], 4, [Sample([5], True, None)], "without a log-probability for each of its tokens"),
        ([[1]], 4, [Sample([], True, [])], "without a log-probability for each of its tokens"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    bench: Any, monkeypatch: Any, prompts: Any, limit: int, answer: Any, message: str
) -> None:
    generation, engine = made(False)
    generation.sync(model(bench, "full"))
    if answer is not None:
        monkeypatch.setattr(engine, "complete", lambda prompts, requests: answer)
    with pytest.raises(RunError, match=message):
        generation.generate(prompts, seed=0, limit=limit)


def test_a_prompt_without_room_at_a_server_is_the_servers_matter(bench: Any) -> None:
    from memcfg_vllm.generation import THERE

    generation = VLLMGeneration(Colocated(Recording(sleeps=False)), Phases(sleeps=False), DRAWN, [2], 12, longer=THERE)
    generation.sync(model(bench, "full"))
    with pytest.raises(RunError) as caught:
        generation.generate([[1] * 9], seed=0, limit=4)
    assert str(caught.value) == (
        "`vllm.server_url`: a prompt and its completion may have 13 tokens, and vLLM was set up for 12\n"
        "  start the server with --max-model-len 13"
    )


def test_it_may_be_closed_twice(bench: Any) -> None:
    generation, engine = made(True)
    generation.close()
    generation.close()
    assert engine.calls == ["close"]
