"""Simulated rounds of sampling against what real ones allocate on the CPU: the samples, their scores, and the update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from memcfg.compose import resolve
from memcfg.engine.build import build
from memcfg.engine.update import counted, gradients, step
from memcfg.errors import RequestError
from memcfg.plan import Plan
from memcfg.planner import online
from memcfg.planner.batches import Lengths
from memcfg.planner.hosts import machine_of
from memcfg.planner.machine import named
from memcfg.planner.simulate import record, simulate
from memcfg.registry import Registry
from memcfg.testing import PeakMemory

pytestmark = pytest.mark.torch

Grown = Callable[[Plan], Any]
NEVER = 1_000_000
"""A token that no model samples: no completion ends before its limit, as in a simulation."""


class Quiet:
    """Told what a tracker is told, and does nothing with it."""

    def enter(self, step: int, phase: str) -> None: ...

    def name(self, tensor: Any, kind: str) -> None: ...


@dataclass
class Real:
    """Bytes by which memory grows while completions are sampled and scored, and within the whole step."""

    round: int
    step: int


def really(plan: Plan, registry: Registry, lengths: Lengths | None = None, device: str = "cpu") -> Real:
    """The second step of a real run."""
    hooks = registry.hooks(plan)
    run = build(plan, hooks, device=device, data=False)
    generation = hooks.generate(plan=plan, model=run.model, tokenizer=run.tokenizer)
    generation.ends = [NEVER]
    stand_ins = hooks.simulation(plan=plan, stands_in={}) | {"generation": lambda made: generation}
    rounds: Any = online.sampled(run, Quiet(), stand_ins, lengths)  # type: ignore[arg-type]

    def update(batches: Any) -> None:
        count = counted(run.objective, batches)
        batches = [batch.to(device) for batch in batches]
        gradients(run.model, batches, run.objective, contexts=run.contexts, denominator=count)
        step(run.model, run.optimizer, max_grad_norm=plan.get("run.max_grad_norm"))

    update(rounds.fresh(1))
    with PeakMemory(device) as sampled:
        update_of_two = rounds.fresh(2)
    update(update_of_two)
    update_of_two = rounds.step = rounds._made = None
    with PeakMemory(device) as whole:
        update(rounds.fresh(3))
    return Real(sampled.bytes, whole.bytes)


GRPO = "trainer=grpo run.batch_size=8 loss.chunk_mib=1"
SHORT = "generation.max_prompt_tokens=24 generation.max_new_tokens=24"
MANY = "run.batch_size=1 run.accumulation=16 grpo.num_generations=8 generation.max_prompt_tokens=60 generation.max_new_tokens=5"


@pytest.mark.parametrize(
    ("given", "phase"),
    [
        (f"{GRPO} {SHORT}", "backward"),
        (f"{GRPO} {MANY}", "generation"),
        (f"{GRPO} {SHORT} run.batch_size=16 grpo.beta=0.1 attention=eager generation.cache=static", "backward"),
        ("trainer=rloo run.batch_size=8 rloo.beta=0.1 generation.max_prompt_tokens=2 generation.max_new_tokens=30", "backward"),
        ("trainer=online_dpo run.batch_size=4 truncation.max_length=40 generation.max_new_tokens=12", "backward"),
    ],
)  # fmt: skip
def test_a_round_grows_as_predicted(given: str, phase: str, simulated: Grown, registry: Registry) -> None:
    """Completions are leapt through in the simulation, and sampled token by token in the real round."""
    plan = of(given, registry)
    predicted, real = simulated(plan), really(plan, registry)
    assert max(predicted.phases["generation"], predicted.phases["scoring"]) == pytest.approx(real.round, rel=1e-4)
    assert predicted.peak == pytest.approx(real.step, rel=1e-3)
    assert max(predicted.phases, key=predicted.phases.__getitem__) == phase


def test_a_round_that_was_sampled_is_predicted_by_its_lengths(registry: Registry) -> None:
    plan = of(f"{GRPO} generation.max_prompt_tokens=64 generation.max_new_tokens=64", registry)
    lengths = [[31, 9], [31, 40], [31, 2], [31, 22], [31, 40], [31, 17], [31, 1], [31, 5]]
    recorded = record(plan, registry.hooks(plan), machine_of(plan), lengths)
    assert recorded.tokens == 8 * 71
    assert recorded.assumed == ()


def test_what_a_round_is_reckoned_with(registry: Registry) -> None:
    plan = of(f"{GRPO} {MANY}", registry)
    assert record(plan, registry.hooks(plan), machine_of(plan), layers=1).assumed == (
        "16 completions sampled at a time, none of which ends before 5 tokens (`generation.max_new_tokens`), of prompts of "
        "60 tokens (`generation.max_prompt_tokens`)",
    )
    plan = of(f"{GRPO} generation.max_new_tokens=5", registry)
    assert record(plan, registry.hooks(plan), machine_of(plan), layers=1).assumed == (
        "8 completions sampled at a time, none of which ends before 5 tokens (`generation.max_new_tokens`), of prompts of "
        "512 tokens (assumed, as nothing bounds it: `generation.max_prompt_tokens=N` does)",
    )


def test_states_that_rest_on_the_host_leave_their_room_to_sampling(registry: Registry) -> None:
    """Adam's two states, each as large as the weights, which are all there is of them without a reference."""
    card = f"{GRPO} {MANY} assume.device=h200 model.dtype=float32"
    plain, resting = (of(given, registry) for given in (card, f"{card} offload.phases=true"))
    found = [simulate(plan, registry.hooks(plan)) for plan in (plain, resting)]
    workspace = named("h200").blas  # the head is held against the model's own logits when it is made
    assert found[0].phases["load"] == pytest.approx(found[0].kinds["weights"] + workspace, rel=0.01)
    saved = found[0].phases["generation"] - found[1].phases["generation"]
    assert saved == pytest.approx(2 * found[0].kinds["weights"], rel=0.01)
    assert found[1].host_bytes > 0
    assert found[1].phases["backward"] == found[0].phases["backward"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            f"{GRPO} generation.cache=offloaded assume.device=h200",
            "`generation.cache`: what the cache `offloaded` keeps, and where, is not simulated\n"
            "  predict `generation.cache=null` instead",
        ),
        (
            f"{GRPO} rewards.models=[there] assume.device=h200",
            "`rewards.models`: what a reward model takes beside the policy is not simulated\n"
            "  predict `rewards.models=[] rewards.functions=[finished]`",
        ),
        (
            f"{GRPO} distributed=fsdp2 assume.world.size=8",
            "`distributed.strategy`: how shards are gathered while completions are sampled is not simulated\n"
            "  predict `distributed.strategy=ddp` instead",
        ),
        (
            f"{GRPO} generation=vllm vllm.mode=colocate assume.device=h200 assume.vllm.installed=true",
            "`generation.backend`: vLLM takes its memory (`vllm.gpu_memory_utilization=0.3`) past torch's allocator, which is "
            "not simulated\n  predict `generation.backend=transformers` instead",
        ),
    ],
)
def test_sampling_that_is_not_simulated_is_refused(given: str, said: str, registry: Registry) -> None:
    plan = of(given, registry)
    with pytest.raises(RequestError) as caught:
        simulate(plan, registry.hooks(plan))
    assert str(caught.value) == said


def of(given: str, registry: Registry) -> Plan:
    return resolve(["model.hidden=64", "model.layers=3", "model.tied=false", *given.split()], registry=registry)


@pytest.mark.parametrize(("beta", "held"), [("0.0", False), ("0.1", True)])
def test_a_reference_is_held_only_for_a_penalty(beta: str, held: bool, registry: Registry) -> None:
    plan = of(f"{GRPO} grpo.beta={beta}", registry)
    run = build(plan, registry.hooks(plan), device="meta", data=False)
    assert (run.reference is not None) == held


@pytest.mark.gpu
@pytest.mark.parametrize("more", ["grpo.beta=0.1", "grpo.beta=0.0 run.batch_size=8 run.accumulation=16"])
def test_a_round_on_a_gpu_grows_as_predicted(more: str, simulated: Grown, registry: Registry) -> None:
    """The allocator rounds each block up to 512 bytes, which the growth of the simulation does not count."""
    sizes = "model.hidden=512 model.layers=6 model.dtype=bfloat16 run.batch_size=64 generation.max_prompt_tokens=256"
    plan = of(f"trainer=grpo {sizes} generation.max_new_tokens=200 {more}", registry)
    predicted, real = simulated(plan), really(plan, registry, device="cuda")
    assert max(predicted.phases["generation"], predicted.phases["scoring"]) == pytest.approx(real.round, rel=0.02)
    assert predicted.peak == pytest.approx(real.step, rel=0.02)
