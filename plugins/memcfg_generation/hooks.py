"""Gives what samples completions with Transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memcfg import Plan, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.engine.forward import causal_model
from memcfg.rollouts import Generation
from memcfg_generation.continuous import ContinuousGeneration
from memcfg_generation.sampler import TransformersGeneration, arguments, end_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@hookimpl
def memcfg_generate(plan: Plan, model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase) -> Generation:
    ends = end_tokens(causal_model(model), tokenizer)
    pads = (tokenizer.pad_token_id, *ends, 0)
    pad = next(token for token in pads if isinstance(token, int))
    if plan["generation.continuous_batching"]:
        return ContinuousGeneration(model, arguments(plan), ends, pad, plan["generation.cache_share"])
    return TransformersGeneration(model, arguments(plan), ends, pad)


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """What sampled, from what the run was given."""
    generation = getattr(run, "generation", None)
    if isinstance(generation, TransformersGeneration):
        text = f"`generate` of the trained model was called {generation.rounds} times"
        continuous = isinstance(generation, ContinuousGeneration)
        if isinstance(generation, ContinuousGeneration):
            text = f"{generation.prompts} prompts of the trained model were queued in {generation.rounds} rounds"
        found = [
            *found,
            Effective("generation.backend", "transformers", text),
            Effective("generation.continuous_batching", continuous, text),
        ]
    return found
