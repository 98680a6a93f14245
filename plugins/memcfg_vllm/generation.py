"""Completions sampled by vLLM, from the weights that the trained model has now.

Where vLLM runs, in this process or behind a server, is a `Backend`'s matter; which call may follow which is `Phases`'."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import torch

from memcfg import Away, MemcfgError, Problem, RunError
from memcfg.rollouts import Sample
from memcfg_vllm.phases import Phases
from memcfg_vllm.same import Same
from memcfg_vllm.teams import Team, everywhere
from memcfg_vllm.weights import check, version, vocabulary

T = TypeVar("T")

ROUNDING: Final = 1e-3
"""How far above zero a log-probability may come out."""
HERE = ("vllm.max_model_length", "vllm.max_model_length={}")
THERE = ("vllm.server_url", "start the server with --max-model-len {}")


class Backend(Protocol):
    """An engine. `wake` and `sleep` are called only where there is something to wake or to put to sleep."""

    def wake(self, part: str) -> None: ...

    def load(self, model: torch.nn.Module) -> None:
        """Take over the model's weights, all of them, and drop what older ones left in the cache."""
        ...

    def complete(self, prompts: Sequence[Sequence[int]], requests: Sequence[dict[str, Any]]) -> list[Sample | None]: ...

    def sleep(self) -> None: ...

    def close(self) -> None: ...


class VLLMGeneration:
    """`drawn`: how each token is drawn, under vLLM's names. `longest`: the most tokens of a prompt with its completion; None
    where the engine alone knows. `team`: the processes that share the engine. `same`: looks at the first completions. `longer`:
    the key and the repair to name where a prompt has no room."""

    def __init__(
        self, backend: Backend, phases: Phases, drawn: Mapping[str, Any], ends: Sequence[int],
        longest: int | None = None, team: Team | None = None, same: Same | None = None, longer: tuple[str, str] = HERE,
    ) -> None:  # fmt: skip
        self.same, self.longer = same, longer
        self.backend, self.phases, self.longest, self.team = backend, phases, longest, team or Team()
        self.drawn, self.ends = dict(drawn), list(ends)
        self.loads, self.naps, self.completions = 0, 0, 0
        self._model: torch.nn.Module | None = None
        self._version, self._known = -1, 0

    def wake(self, part: str) -> None:
        """Wake the `weights` or the `cache`, where they are asleep."""
        if part == "weights":
            if self.phases.wake_weights():
                _asked("waking its weights", lambda: self.backend.wake(part))
        elif self.phases.wake_cache():
            _asked("waking its cache", lambda: self.backend.wake(part))

    def sync(self, model: torch.nn.Module) -> None:
        """Give vLLM the model's weights as they are now. Raises `RunError` for an adapter that weights cannot express."""
        check(model)
        self.phases.begin_loading()
        _asked("taking over the weights", lambda: self.backend.load(model))
        self.phases.end_loading()
        self.loads += 1
        self._model, self._version, self._known = model, version(model), vocabulary(model)

    def generate(self, prompts: Sequence[Sequence[int]], *, seed: int | None, limit: int) -> list[Sample]:
        """One completion for each prompt. Each has a seed of its own, which follows from `seed` and its place: equal prompts
        get different completions. Processes that share an engine complete everybody's prompts together, so that all of them
        must call it, and what is wrong with one's prompts is told by all."""
        if self._model is not None and version(self._model) != self._version:
            self.phases.changed()
        self.phases.generate()
        own = [(list(prompt), self._request(seed, place, limit)) for place, prompt in enumerate(prompts)]
        asked, mine = self.team.joined(own)
        found = _asked("generating", lambda: self._completed(asked, limit))
        self.completions += len(own)
        same, model = self.same, self._model
        if same is not None and model is not None and same.due:
            everywhere(lambda: same.look(model, prompts, found[mine]))
        return found[mine]

    def sleep(self) -> None:
        """Give weights and cache back, where `vllm.sleep` is on; in any case the weights must be given again."""
        if self.phases.sleep():
            _asked("going to sleep", self.backend.sleep)
            self.naps += 1

    def close(self) -> None:
        self._model = None
        self.backend.close()

    def _request(self, seed: int | None, place: int, limit: int) -> dict[str, Any]:
        own = None if seed is None else (seed + place) % 2**31
        return {**self.drawn, "n": 1, "seed": own, "max_tokens": limit, "logprobs": 0, "stop_token_ids": self.ends}

    def _completed(self, asked: Sequence[tuple[list[int], dict[str, Any]]], limit: int) -> list[Sample]:
        if not asked:
            return []
        prompts, requests = [prompt for prompt, _ in asked], [request for _, request in asked]
        self._check(prompts, limit)
        found = whole(self.backend.complete(prompts, requests), len(prompts))
        for sample in found:
            refuse_nonsense(sample, limit, self._known)
        return found

    def _check(self, prompts: Sequence[Sequence[int]], limit: int) -> None:
        if not all(prompts):
            raise RunError(Problem("a prompt is empty: there is nothing to complete", key="data.path"))
        longest = max(map(len, prompts)) + limit
        if self.longest is not None and longest > self.longest:
            text = f"a prompt and its completion may have {longest:,} tokens, and vLLM was set up for {self.longest:,}"
            raise RunError(Problem(text, key=self.longer[0], fix=self.longer[1].format(longest)))


def whole(found: Sequence[Sample | None], expected: int) -> list[Sample]:
    """Raises `Away` unless every prompt has a completion with as many log-probabilities as tokens."""
    done = [sample for sample in found if sample is not None]
    if len(done) != expected:
        raise Away(Problem(f"vLLM completed {len(done)} of {expected} prompts", key="generation.backend"))
    if any(not sample.ids or len(sample.logprobs or ()) != len(sample.ids) for sample in done):
        text = "vLLM gave a completion without a log-probability for each of its tokens"
        raise Away(Problem(text, key="generation.backend"))
    return done


def refuse_nonsense(sample: Sample, limit: int, known: int) -> None:
    """Raises `Away` for a completion that the trained model could not have made: of more than `limit` tokens, of tokens beyond
    the `known` ones, or with log-probabilities that are none. On a GPU such a token would end the process."""
    wrong = next((token for token in sample.ids if not 0 <= token < known), None)
    odd = next((score for score in sample.logprobs or () if not -math.inf < score <= ROUNDING), None)
    if wrong is not None:
        text = f"vLLM sampled token {wrong}, and the trained model knows {known:,}"
    elif len(sample.ids) > limit:
        text = f"vLLM gave a completion of {len(sample.ids):,} tokens where at most {limit:,} were asked for"
    elif odd is not None:
        text = f"vLLM gave {odd:g} for the log-probability of a token"
    else:
        return
    raise Away(Problem(text, key="generation.backend"))


def _asked(doing: str, work: Callable[[], T]) -> T:
    """What vLLM does in each process, or what all of them raise where it fails in one."""
    return everywhere(lambda: _told(doing, work))


def _told(doing: str, work: Callable[[], T]) -> T:
    """vLLM's own errors, told in one line."""
    try:
        return work()
    except (MemcfgError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or "it says no more"
        raise Away(Problem(f"vLLM failed {doing}: {type(error).__name__}: {text}", key="generation.backend")) from error
