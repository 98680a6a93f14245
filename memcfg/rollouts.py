"""Completions that a model samples while it is trained: what samples them, and what trainers make of them.

    memcfg_generate(plan, model, tokenizer) -> Generation          which backend samples (`generation.backend`)
    memcfg_sampling_context(plan, model, optimizer, contexts)      what is entered around sampling (weights gathered, ...)

The engine calls a backend in this order, once for each round of completions, inside the contexts:

    generation.wake("weights")        after `sleep`, and before the first round
    generation.sync(model)            the weights as they are now
    generation.wake("cache")
    generation.generate(...)          once or several times
    generation.sleep()

`close` is called once, however the run ends. A backend that never sleeps does nothing in `wake` and `sleep`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

WAKES = ("weights", "cache")
"""The parts that `Generation.wake` is given, in order."""


@dataclass(frozen=True)
class Sample:
    """One sampled completion. `ids`: its tokens, at least one, without padding; the end token too where it was sampled.
    `finished`: whether it ended by itself, not at the limit. `logprobs`: the sampler's own log-probability of each token, at
    the temperature it sampled with; None where the sampler is the trained model itself."""

    ids: list[int]
    finished: bool
    logprobs: list[float] | None = None


class Generation(Protocol):
    """What samples completions."""

    def wake(self, part: str) -> None:
        """Make room for the `weights`, then for the `cache`. Nothing for what is awake."""
        ...

    def sync(self, model: torch.nn.Module) -> None:
        """Take the model's weights as they are now. `model` is the trained one, as it is wrapped (DDP, FSDP2, DeepSpeed)."""
        ...

    def generate(self, prompts: Sequence[Sequence[int]], *, seed: int | None, limit: int) -> list[Sample]:
        """One completion of at most `limit` tokens for each of this process's prompts, in their order; a group is its
        prompt, repeated. The same seed and weights give the same completions. No random state is changed, and every switch
        of the model is put back, after an error too."""
        ...

    def sleep(self) -> None:
        """Give back what training can use. What was synced may be lost: `wake` and `sync` come before the next round."""
        ...

    def close(self) -> None:
        """End for good. May be called twice."""
        ...
