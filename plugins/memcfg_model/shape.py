"""A model of a published shape whose weights are drawn at random: to predict with, where nothing is drawn at all, and to
measure with. It reads text with the small tokenizer that is shipped beside this file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from accelerate import init_empty_weights
from transformers import AutoConfig, AutoModelForCausalLM

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
            return AutoModelForCausalLM.from_config(config(plan), dtype=dtype)
    with init_empty_weights(include_buffers=False):
        built = AutoModelForCausalLM.from_config(config(plan), dtype=dtype)
    built.tie_weights()  # without storage each place of a shared weight was given one of its own
    generator = torch.Generator(device).manual_seed(plan["run.seed"])
    _drawn(built, torch.device(device), generator, {})
    return built


def _drawn(module: torch.nn.Module, device: torch.device, generator: torch.Generator, done: dict[int, Any]) -> None:
    """Random weights on `device`, in the order in which `Module.to` moves them; tied ones once."""
    for child in module.children():
        _drawn(child, device, generator, done)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            if id(parameter) not in done:
                done[id(parameter)] = torch.nn.Parameter(
                    _weights(parameter, device, generator), parameter.requires_grad
                )
            module._parameters[name] = done[id(parameter)]
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = buffer.to(device)


def _weights(like: torch.Tensor, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    empty = torch.empty_like(like, device=device)
    return empty.fill_(1.0) if like.dim() < 2 else empty.normal_(std=SCALE, generator=generator)
