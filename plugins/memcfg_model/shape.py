"""A model of a published shape whose weights are drawn at random: to predict with, where nothing is drawn at all, and to
measure with. It reads text with the small tokenizer that is shipped beside this file."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch
from accelerate import init_empty_weights
from transformers import AutoConfig, AutoModelForCausalLM

from memcfg.arriving import Bring, arrive, hold
from memcfg_model.places import packed
from memcfg_model.presets import PRESETS

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from memcfg import Plan

SCALE = 0.02
"""Standard deviation of the weights of matrices."""


def config(plan: Plan) -> PreTrainedConfig:
    """The configuration of the plan's preset."""
    shape = dict(PRESETS[plan["model.preset"]])
    return AutoConfig.for_model(shape.pop("model_type"), **shape, use_cache=False)


def model(plan: Plan, device: str) -> PreTrainedModel:
    """The model in the plan's dtype; on `meta` its shape only."""
    dtype = getattr(torch, plan["model.dtype"])
    if device == "meta":
        with torch.device("meta"):
            built = AutoModelForCausalLM.from_config(config(plan), dtype=dtype)
    else:
        with init_empty_weights(include_buffers=False):
            built = AutoModelForCausalLM.from_config(config(plan), dtype=dtype)
        built.tie_weights()  # without storage each place of a shared weight was given one of its own
    hold(built, None if device == "meta" else _drawn(torch.device(device), plan))
    if not packed(plan):
        arrive(built)
    return built


def _drawn(device: torch.device, plan: Plan) -> Bring:
    """Random weights on `device`, in the order in which they are brought; tied ones once.

    A model that waits on the host to go to a GPU in shards is drawn on the GPU too: it is the one that would lie there whole."""
    generator = torch.Generator("cuda" if plan.device == "cuda" else device).manual_seed(plan["run.seed"])
    done: WeakValueDictionary[int, torch.nn.Parameter] = WeakValueDictionary()  # those that are packed go at once

    def bring(module: torch.nn.Module) -> None:
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if id(parameter) not in done:
                    drawn = torch.nn.Parameter(_weights(parameter, device, generator), parameter.requires_grad)
                    done[id(parameter)] = drawn
                module._parameters[name] = done[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.to(device)

    return bring


def _weights(like: torch.Tensor, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    if like.dim() < 2:
        return torch.ones_like(like, device=device)
    return torch.empty_like(like, device=generator.device).normal_(std=SCALE, generator=generator).to(device)
