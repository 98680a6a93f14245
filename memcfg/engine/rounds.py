"""Rounds of sampling: one cycle of a generation backend, and where the prompts of a round come from."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from memcfg.engine.forward import causal_model
from memcfg.engine.loader import shuffled
from memcfg.engine.update import entered
from memcfg.errors import Problem, RunError
from memcfg.rollouts import WAKES, Generation, Sample

if TYPE_CHECKING:
    from memcfg.plan import Plan


LONGEST: Final = "generation.max_prompt_tokens"
"""The option that says how long a prompt may be."""


@dataclass(frozen=True)
class Sizes:
    """How many micro-batches of a process a step takes (`step`), are sampled at a time (`sampled`) and make a round
    (`whole`, the larger of the two); a round of `whole` is `updates` times as many steps' worth of training."""

    step: int
    sampled: int
    updates: int

    @classmethod
    def of(cls, plan: Plan, updates: int, world: int) -> Sizes:
        accumulation, batch = plan["run.accumulation"], plan["run.batch_size"]
        rows = plan.get("generation.batch_size")
        sampled = rows // (batch * world) if rows else plan.get("generation.steps") or accumulation
        return cls(accumulation, sampled, updates)

    @property
    def whole(self) -> int:
        return max(self.step, self.sampled)

    @property
    def steps(self) -> int:
        """Optimizer steps in a round."""
        return self.whole // self.step * self.updates


@dataclass
class Sampler:
    """Runs a backend through its cycle. `model` gives the trained model as it is wrapped now; `contexts` are entered around."""

    generation: Generation
    model: Callable[[], torch.nn.Module]
    contexts: Callable[[], Sequence[AbstractContextManager[Any]]]
    limit: int
    seconds: float = 0.0

    def __call__(self, portions: Sequence[Sequence[Sequence[int]]], seeds: Sequence[int]) -> list[list[Sample]]:
        """Completions of each portion of prompts, all with the weights as they are now."""
        began = time.perf_counter()
        generation = self.generation
        with entered(self.contexts()):
            generation.wake(WAKES[0])
            try:
                generation.sync(self.model())
                generation.wake(WAKES[1])
                made = [
                    generation.generate(prompts, seed=seed, limit=self.limit)
                    for prompts, seed in zip(portions, seeds, strict=True)
                ]
            finally:
                generation.sleep()
        self.seconds += time.perf_counter() - began
        return made


def seed_of(*numbers: int | str) -> int:
    """A seed of its own for each round and process."""
    digest = hashlib.blake2b("/".join(map(str, numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 2**63


def has_room(longest: int, model: torch.nn.Module, limit: int) -> None:
    """Raises `RunError` where a prompt of `longest` tokens and a completion need more positions than the model has."""
    config: Any = causal_model(model).config  # type: ignore[union-attr]
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if isinstance(positions, int) and longest + limit > positions:
        text = f"a prompt of {longest:,} tokens and {limit:,} more are too long for a model of {positions:,} positions"
        fix = f"generation.max_new_tokens={positions - longest}" if positions > longest else "shorter prompts"
        raise RunError(Problem(text, key="generation.max_new_tokens", fix=fix))


def refuse_longer(longest: int, plan: Plan) -> None:
    """Raises `RunError` for a prompt of `longest` tokens where the plan reckons with shorter ones."""
    most = plan.get(LONGEST)
    if most is not None and longest > most:
        text = f"there is a prompt of {longest:,} tokens, and memory was reckoned for {most:,}"
        raise RunError(Problem(text, key=LONGEST, fix=f"{LONGEST}={longest}, or shorter prompts"))


class Order:
    """Prompts without end: each epoch in an order of its own, the next one following without a gap."""

    def __init__(self, count: int, seed: int, *, shuffle: bool) -> None:
        self.count, self.seed, self.shuffle = count, seed, shuffle
        self._known: tuple[int, list[int]] | None = None

    def __getitem__(self, place: int) -> int:
        """The row that is the `place`-th prompt since the beginning."""
        epoch, within = divmod(place, self.count)
        if self._known is None or self._known[0] != epoch:
            self._known = (epoch, self._order(epoch))
        return self._known[1][within]

    def _order(self, epoch: int) -> list[int]:
        return shuffled(self.count, self.seed, epoch) if self.shuffle else list(range(self.count))
