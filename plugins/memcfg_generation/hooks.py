"""Gives what samples completions with Transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memcfg import Plan, Problem, RequestError, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.engine.forward import causal_model
from memcfg.rollouts import Generation, end_tokens
from memcfg.simulated import GENERATION
from memcfg_generation.continuous import ContinuousGeneration
from memcfg_generation.graphs import GraphedGeneration
from memcfg_generation.sampler import TransformersGeneration, arguments

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SIMULATED = (None, "dynamic", "static")
"""Caches that grow, or lie there from the start, in the device's memory."""


@hookimpl
def memcfg_generate(plan: Plan, model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase) -> Generation:
    ends = end_tokens(causal_model(model), tokenizer)
    pads = (tokenizer.pad_token_id, *ends, 0)
    pad = next(token for token in pads if isinstance(token, int))
    if plan["generation.continuous_batching"]:
        return ContinuousGeneration(model, arguments(plan), ends, pad, plan["generation.cache_share"])
    if plan["generation.graphs"]:
        return GraphedGeneration(model, arguments(plan), ends, pad)
    return TransformersGeneration(model, arguments(plan), ends, pad)


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """How sampling is simulated. Raises `RequestError` for a cache that is not."""
    if plan["generation.backend"] != "transformers":
        return stands_in
    if plan["generation.continuous_batching"]:
        text = "continuous batching takes a share of what memory is free, which is not simulated"
        fix = "predict `generation.continuous_batching=false` instead"
        raise RequestError(Problem(text, key="generation.continuous_batching", fix=fix))
    if plan.get("generation.cache") not in SIMULATED:
        text = f"what the cache `{plan['generation.cache']}` keeps, and where, is not simulated"
        raise RequestError(Problem(text, key="generation.cache", fix="predict `generation.cache=null` instead"))
    from memcfg_generation.simulated import leaping

    return stands_in | {GENERATION: leaping}


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
            graphs(generation),
        ]
    return found


def graphs(generation: TransformersGeneration) -> Effective:
    """Whether tokens are replayed, from how many were."""
    replayed = generation.replayed if isinstance(generation, GraphedGeneration) else 0
    text = f"{replayed:,} tokens were replayed in {generation.rounds} rounds"
    return Effective("generation.graphs", isinstance(generation, GraphedGeneration), text)
