"""Completions sampled with Transformers' continuous batching: prompts are not padded, a completion that ends makes room for the
next prompt at once, and prompts that begin alike share what is cached of them.

Transformers runs it in a thread of its own. Which prompts are worked on together decides which random numbers each draws, so all
of them are queued before the thread begins, and the cache has room for all of them at their longest where the memory allows:
the same seed then gives the same completions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields
from typing import Any, Final

import torch

from memcfg import Problem, RunError
from memcfg.engine.forward import causal_model
from memcfg.rollouts import Sample
from memcfg_generation.sampler import TransformersGeneration
from memcfg_generation.switches import attending, sampling, seeded

PAGE: Final = 256
"""Tokens of a page of the cache: Transformers' own size, smaller where nothing is as long."""
STEP: Final = 16
TOKENS: Final = 4096
"""Most tokens of prompts that are read at a time."""
NO_END: Final = -1
SWITCH: Final = "auto_switch_to_flash"
NO_ROOM: Final = ("num_sectors", "num_blocks = ")
"""What Transformers says, without a type of its own, of a cache of no pages: of 5.24, of 5.17."""
OPTION: Final = "generation.continuous_batching"
OTHER: Final = f"{OPTION}=false"


class ContinuousGeneration(TransformersGeneration):
    """Samples as its parent does, but for how prompts are batched. `share` of the memory that is free may hold the cache."""

    def __init__(
        self, model: torch.nn.Module, settings: Mapping[str, Any], ends: Sequence[int], pad: int, share: float
    ) -> None:
        super().__init__(model, settings, ends, pad)
        self.share = share
        self.prompts = 0

    def generate(self, prompts: Sequence[Sequence[int]], *, seed: int | None, limit: int) -> list[Sample]:
        """One completion of each. Raises `RunError` for an empty prompt, and where Transformers completes one of them not."""
        if not prompts:
            return []
        self.refuse_empty(prompts)
        given = [list(prompt) for prompt in prompts]
        device = next(self.model.parameters()).device
        with torch.no_grad(), sampling(self.model) as model, _paged(model), seeded(seed, device), _quiet():
            try:
                found = self._served(model, given, seed, limit, pages(given, limit))
            except MemoryError:  # not all of them at once: whatever fits
                found = self._served(model, given, seed, limit, None)
        self.rounds, self.prompts = self.rounds + 1, self.prompts + len(given)
        return [self._sample(row, limit) for row in found]

    def _served(
        self, model: Any, prompts: list[list[int]], seed: int | None, limit: int, blocks: int | None
    ) -> list[list[int]]:
        """The completions' tokens. Raises `MemoryError` where the cache has no room for `blocks`, `RunError` for anything else."""
        try:
            manager = model.init_continuous_batching(
                generation_config=self._config(limit),
                continuous_batching_config=self._batching(prompts, seed, limit, blocks),
            )
        except (ValueError, AttributeError, TypeError, NotImplementedError) as error:
            raise _failed(error) from error
        names = manager.add_requests(inputs=prompts, max_new_tokens=limit)
        finished: dict[str, Any] = {}
        manager.start()
        try:
            while len(finished) < len(names):
                result = manager.get_result(timeout=1)
                if result is not None and result.is_finished():
                    finished[result.request_id] = result
                elif result is None and not manager.is_running():
                    break
        finally:
            with suppress(RuntimeError):
                manager.stop(block=True, timeout=None, hard_stop=len(finished) < len(names))
            manager.destroy()
        fatal = getattr(getattr(manager, "background_thread_status", None), "fatal_error", None)
        wrong = [done.error for done in finished.values() if done.error is not None]
        if isinstance(fatal, MemoryError) and blocks is not None:
            raise fatal
        if isinstance(fatal, MemoryError) or any(word in str(fatal) for word in NO_ROOM):
            text = f"the share {self.share:g} of the memory that is free has no room for the cache of {len(prompts)} prompts"
            raise RunError(Problem(text, key="generation.cache_share", fix=f"a larger one, or {OTHER}"))
        if fatal is not None or wrong or len(finished) < len(names):
            raise _failed(fatal or (wrong[0] if wrong else "it ended early"))
        return [list(finished[name].generated_tokens) for name in names]

    def _batching(self, prompts: Sequence[Sequence[int]], seed: int | None, limit: int, blocks: int | None) -> Any:
        from transformers.generation import ContinuousBatchingConfig

        known = knows()
        own: dict[str, Any] = {"page_size" if "page_size" in known else "block_size": page(prompts, limit)}
        if SWITCH in known:
            own[SWITCH] = False
        return ContinuousBatchingConfig(
            num_blocks=blocks, max_memory_percent=self.share, seed=seed,
            max_batch_tokens=max(len(prompts), STEP, min(TOKENS, sum(map(len, prompts)))),
            drop_unsupported_processors=False, use_async_batching=False, **own,
        )  # fmt: skip

    def _config(self, limit: int) -> Any:
        config = super()._config(limit)
        if config.eos_token_id is None:
            config.eos_token_id = NO_END  # without one Transformers would look for the model's own
        return config


def knows() -> set[str]:
    """The settings that the installed Transformers' continuous batching has: their names differ between its versions."""
    from transformers.generation import ContinuousBatchingConfig

    return {field.name for field in fields(ContinuousBatchingConfig)}


@contextmanager
def _paged(model: Any) -> Iterator[None]:
    """Attention over pages with the plan's own kernel. A flash kernel that is not the plan's would be fetched from the hub, and
    sampling must not depend on what lies there: where no setting prevents that, a kernel that is paged already does."""
    causal = causal_model(model)
    name = causal.config.get_text_config()._attn_implementation
    with nullcontext() if SWITCH in knows() else attending(causal, f"paged|{name}"):
        yield


def page(prompts: Sequence[Sequence[int]], limit: int) -> int:
    """Tokens of a page: no more than the longest prompt with its completion needs."""
    longest = max(map(len, prompts)) + limit
    return min(PAGE, -(-longest // STEP) * STEP)


def pages(prompts: Sequence[Sequence[int]], limit: int) -> int:
    """How many pages hold every prompt with its longest completion."""
    size = page(prompts, limit)
    return sum(-(-(len(prompt) + limit) // size) for prompt in prompts) + 1


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Transformers logs of the thread: what went wrong there is raised here."""
    log = logging.getLogger("ContinuousBatchingLogger")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


def _failed(error: Any) -> RunError:
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return RunError(Problem(f"Transformers' continuous batching failed: {reason}", key=OPTION, fix=OTHER))
