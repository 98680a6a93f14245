"""Completions sampled by the trained model itself, through Transformers' `generate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from memcfg import Problem, RunError
from memcfg.engine.notfinite import ADVICE
from memcfg.rollouts import Sample
from memcfg_generation.switches import sampling, seeded


class TransformersGeneration:
    """Samples with the weights that `sync` last showed it, which are the trained model's own: they are never copied.

    `settings` are the arguments of a `GenerationConfig`; `ends` the tokens that end a completion; `pad` fills up."""

    def __init__(self, model: torch.nn.Module, settings: Mapping[str, Any], ends: Sequence[int], pad: int) -> None:
        self.settings, self.ends, self.pad = dict(settings), sorted(set(ends)), pad
        self.model = model
        self.rounds = 0

    def wake(self, part: str) -> None:
        """It never sleeps."""

    def sync(self, model: torch.nn.Module) -> None:
        """Remember which model to sample from."""
        self.model = model

    def generate(self, prompts: Sequence[Sequence[int]], *, seed: int | None, limit: int) -> list[Sample]:
        """All prompts as one batch, padded on the left, with a key-value cache. Raises `RunError` for an empty prompt."""
        if not prompts:
            return []
        self.refuse_empty(prompts)
        device = next(self.model.parameters()).device
        ids, mask = self._padded(prompts, device)
        with torch.no_grad(), sampling(self.model) as model, seeded(seed, device):
            whole = self.whole(model, limit, input_ids=ids, attention_mask=mask)
        self.rounds += 1
        return [self._sample(row, limit) for row in whole[:, ids.shape[1] :].tolist()]

    def whole(self, model: Any, limit: int, **inputs: torch.Tensor) -> torch.Tensor:
        """Prompts and completions, int64 [B, L]. Raises `RunError` for a model whose logits are no numbers, and for a cache that
        needs a package that is not there."""
        try:
            found: torch.Tensor = model.generate(
                **inputs, generation_config=self._config(limit), logits_processor=LogitsProcessorList([Finite()])
            )
        except ImportError as error:
            text = f"Transformers' cache of this kind needs a package: {' '.join(str(error).split())}"
            raise RunError(Problem(text, key="generation.cache", fix="~generation.cache")) from error
        return found

    compiles = False
    """Whether `generate` may ask the model for a compiled forward, as it does by itself for a static cache. Each round has another
    size, so it would compile anew for each."""

    def refuse_empty(self, prompts: Sequence[Sequence[int]]) -> None:
        """Raises `RunError` for an empty prompt."""
        if not all(prompts):
            raise RunError(Problem("a prompt is empty: there is nothing to complete", key="data.path"))

    def sleep(self) -> None:
        """Nothing of its own to give back: the cache ends with each call."""

    def close(self) -> None:
        """Nothing is left open."""

    def _config(self, limit: int) -> Any:
        from transformers import GenerationConfig

        return GenerationConfig(
            max_new_tokens=limit, eos_token_id=self.ends or None, pad_token_id=self.pad, use_cache=True,
            disable_compile=not self.compiles, **self.settings,
        )  # fmt: skip

    def _padded(self, prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask, int64 [B, L], prompts on the right."""
        width = max(map(len, prompts))
        ids = torch.tensor([[self.pad] * (width - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        return ids.to(device), mask.to(device)

    def _sample(self, row: list[int], limit: int) -> Sample:
        """Up to the first end token; what follows it is padding."""
        end = next((place for place, token in enumerate(row) if token in self.ends), None)
        return Sample(row[:limit], False) if end is None else Sample(row[: end + 1], True)


class Finite(LogitsProcessor):  # type: ignore[misc]
    """Looks at the logits of each completion's first token: weights that are no numbers show there, and on a GPU drawing from
    them would end the process. Changes nothing."""

    def __init__(self) -> None:
        self.looked = False

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if not self.looked and not scores.is_meta:
            self.looked = True
            if not bool(scores.amax(-1).isfinite().all()):  # waits for the device, once for each round
                text = "the model's logits are no finite numbers, so nothing can be sampled from it"
                raise RunError(Problem(text, key="run.learning_rate", fix=ADVICE))
        return scores


def arguments(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What the plan's `generation.*` options are to Transformers. A temperature of 0 takes the likeliest token."""
    temperature = plan["generation.temperature"]
    drawn = {
        "temperature": temperature,
        "top_p": plan["generation.top_p"],
        "top_k": plan["generation.top_k"],
        "min_p": plan.get("generation.min_p"),
    }
    return {
        "do_sample": temperature > 0,
        **(drawn if temperature > 0 else {}),
        "repetition_penalty": plan["generation.repetition_penalty"],
        "cache_implementation": plan.get("generation.cache"),
    }
