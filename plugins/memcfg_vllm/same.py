"""That vLLM computes the model that is trained: the log-probabilities of its first completions, beside the model's own.

A server of another model takes weights whose names and shapes fit, and keeps its own for the rest: nothing fails, and every
completion comes from a mixture. The same shows in numbers at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from memcfg import Problem, RunError
from memcfg.engine.update import evaluating
from memcfg.rollouts import Sample

LOOKED_AT = 4
"""Completions that are compared."""
FINE = {torch.float32: 0.1, torch.float64: 0.1}
"""The largest mean difference, in nats for a token, that is rounding: kernels differ, and so do the orders of their sums."""
ROUGH = 0.3
"""The same for weights of 16 bits."""


class Same:
    """Compares once. `found`: the mean difference for a token, in nats; None until then, or where nothing can be compared."""

    def __init__(self, drawn: Mapping[str, Any], fix: str | None = None) -> None:
        self.temperature, self.fix = drawn["temperature"], fix
        self.possible = _whole_distribution(drawn)
        self.found: float | None = None

    @property
    def due(self) -> bool:
        """Whether there is something to compare, and nothing was compared yet: the same for all processes."""
        return self.possible and self.found is None

    def look(self, model: torch.nn.Module, prompts: Sequence[Sequence[int]], samples: Sequence[Sample]) -> None:
        """Raises `RunError` where the samples are another model's. `model` is wrapped; every process must call it."""
        if not self.due:
            return
        inner: Any = model
        while isinstance(getattr(inner, "module", None), torch.nn.Module):
            inner = inner.module
        with torch.no_grad(), evaluating(inner):
            pairs = list(zip(prompts, samples, strict=True))[:LOOKED_AT]
            apart = torch.cat([_apart(inner, list(prompt), sample, self.temperature) for prompt, sample in pairs])
        self.found = float(apart.mean())
        most = FINE.get(next(inner.parameters()).dtype, ROUGH)
        if not self.found <= most:
            text = (
                "vLLM does not compute the model that is trained: the log-probabilities of its first completions differ from the "
                f"model's by {self.found:.3g} for a token (at most {most:g} is rounding)"
            )
            raise RunError(Problem(text, key="generation.backend", fix=self.fix))

    def said(self) -> str:
        if self.found is not None:
            return f"log-probabilities as the model's, to {self.found:.2g} for a token"
        return "log-probabilities not compared: they are those of a cut distribution"


def _whole_distribution(drawn: Mapping[str, Any]) -> bool:
    """Whether tokens are drawn from all that the model gives them, so that both speak of the same numbers."""
    cut = drawn["top_p"] < 1 or drawn["top_k"] > 0 or drawn["min_p"] > 0 or drawn["repetition_penalty"] != 1
    return not cut and drawn["regex"] is None and drawn["temperature"] > 0


def _apart(model: Any, prompt: list[int], sample: Sample, temperature: float) -> torch.Tensor:
    """How far each token's log-probabilities are apart: float32 [tokens of the completion], on the CPU."""
    ids = torch.tensor([[*prompt, *sample.ids]], device=next(model.parameters()).device)
    labels = ids.clone()
    labels[:, : len(prompt)] = -100
    own = model(
        input_ids=ids, use_cache=False, head_call=lambda head, inner, hidden: head.logprobs(inner, hidden, labels, temperature)
    )  # fmt: skip
    return (own[0, len(prompt) :].float().cpu() - torch.tensor(sample.logprobs)).abs()
