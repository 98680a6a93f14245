"""Implementations of the model plugin's hooks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from memcfg import hookimpl
from memcfg.engine.evidence import Effective
from memcfg.engine.forward import causal_model
from memcfg_model import saved, shape, tiny

MODELS = {"tiny": tiny.model, "shape": shape.model, "hub": saved.model}

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from memcfg import Plan


@hookimpl
def memcfg_load_tokenizer(plan: Plan) -> PreTrainedTokenizerBase:
    return saved.tokenizer(plan) if plan["model.source"] == "hub" else tiny.tokenizer()


@hookimpl
def memcfg_load_model(plan: Plan, device: str) -> PreTrainedModel:
    """The model on its device; held (`memcfg.arriving`), where its weights are packed as they arrive and are not there yet."""
    return MODELS[plan["model.source"]](plan, device).train()


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The dtype that most of the weights have, of those that were loaded: beside frozen ones what is trained was added. Techniques
    may keep some of them in another, or packed as integers."""
    sizes: Counter[torch.dtype] = Counter()
    parameters = list(run.model.parameters())
    for parameter in [p for p in parameters if not p.requires_grad] or parameters:
        if parameter.is_floating_point():
            sizes[parameter.dtype] += parameter.numel()
    most, count = sizes.most_common(1)[0]
    name = str(most).removeprefix("torch.")
    what = f"{count:,} of {sizes.total():,} weights of `{type(causal_model(run.model)).__name__}` are {name}"
    found.append(Effective("model.dtype", "auto" if plan["model.dtype"] == "auto" else name, what))
    return found
