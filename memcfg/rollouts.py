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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch

    from memcfg.batch import Batch

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


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a completion: the tokenizer's, and those that the weights were saved with."""
    saved = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found = [tokenizer.eos_token_id, *(saved if isinstance(saved, list) else [saved])]
    return list(dict.fromkeys(token for token in found if token is not None))


# ------------------------------------------------------------------------------------------------ what is made of them


@dataclass(frozen=True)
class Round:
    """This process's share of the completions that were sampled at one time.

    `prompts`: the tokens of each completion's prompt; `about`: the columns of its row. Over all processes, in order, the
    `group` completions of a prompt lie together; `gather` joins the values of all processes along the first axis, and
    `mine` is this process's part of the result."""

    prompts: Sequence[Sequence[int]]
    about: Sequence[Mapping[str, Any]]
    samples: Sequence[Sample]
    group: int
    training: bool = True
    gather: Callable[[torch.Tensor], torch.Tensor] = lambda values: values
    rank: int = 0

    @property
    def mine(self) -> slice:
        size = len(self.samples)
        return slice(self.rank * size, (self.rank + 1) * size)


@dataclass(frozen=True)
class Learned:
    """What a round becomes: `rows` for the trainer's collator, `figures` to log (numbers by name; names that end in `min`
    or `max` are joined as such, all others are averaged), and one `record` for each completion, plain data to show."""

    rows: Sequence[Mapping[str, Any]]
    figures: Mapping[str, float]
    records: Sequence[Mapping[str, Any]]


@runtime_checkable
class Sampling(Protocol):
    """An objective that learns from completions which the model samples. `completions`: how many of each prompt;
    `held_out_completions`: the same in evaluation; `per_row`: how many of them make a row of a micro-batch; `updates`: how
    often a round is trained on; `shuffle`: whether prompts come in random order; `limit`: the longest completion; `nothing`: why a round may have nothing
    to learn from, as a clause."""

    completions: int
    held_out_completions: int
    per_row: int
    updates: int
    shuffle: bool
    limit: int
    nothing: str

    def judged_by(self, tokenizer: Any, found: Sequence[Any]) -> None:
        """Given once at build: the tokenizer, and what `memcfg_rewards` gave."""
        ...

    def learn(self, sampled: Round) -> Learned:
        """Judge a round: as many completions as there are `samples`, divided by `per_row`, become rows."""
        ...

    def before(self, model: torch.nn.Module, batch: Batch, *, several: bool) -> None:
        """Called once for each micro-batch of a round, without gradient, while the model is still the one that sampled:
        what is to be kept of it goes into the batch's fields, float32 [B, L]. `several`: more than one update follows."""
        ...

    def settle(self, sampled: Round, batches: Sequence[Batch]) -> Mapping[str, float]:
        """Called once for each round after `before`, with all its micro-batches on the CPU: the place for what needs their
        log-probabilities. Returns further figures."""
        ...


OWN = "own"
"""The sampler that is the trained model itself."""


@runtime_checkable
class Renewing(Protocol):
    """An objective of given rows that replaces the completions of some steps by sampled ones. `renews`: whether it does so at
    all; `limit`: the longest of them."""

    renews: bool
    limit: int

    def others(self) -> Mapping[str, tuple[torch.nn.Module, Sequence[AbstractContextManager[Any]]]]:
        """Models besides the trained one (`OWN`) that may sample, by name, each with contexts to enter around it."""
        ...

    def source(self, drawn: float) -> str | None:
        """Whose completions a step learns from: a sampler's name, or None for the given ones. `drawn` is uniform in [0, 1)."""
        ...

    def renewed(self, name: str | None) -> None:
        """Told of each step that is trained on whose completions it has."""
        ...
