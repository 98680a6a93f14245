"""Implementations of the quantization plugin's hooks."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import torch

from memcfg import Plan, Problem, RunError, hookimpl
from memcfg.engine.evidence import Effective
from memcfg_quantization.layers import already, mode_of, quantise


@hookimpl(produces="quantized")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model frozen, on its device, with the weights of its linear layers in few bits.

    Raises `RunError` for a model that is quantised in another way already."""
    other = sorted({mode_of(layer) for layer in already(model)} - {plan["quantization.mode"]})
    if other:
        text = f"the model's weights are {', '.join(f'`{mode}`' for mode in other)} already"
        raise RunError(Problem(text, key="quantization.mode", fix=f"quantization.mode={other[0]}"))
    # it would say at every product that it computes in float16, which is what eight-bit products are made of
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    model.requires_grad_(False)
    where = next(model.parameters()).device
    device = where if where.type == "meta" else torch.device(plan.device)
    quantise(plan, model, device)
    model.to(device)
    # what peft asks to know which of its layers fit
    model.is_loaded_in_8bit = plan["quantization.mode"] == "int8"  # type: ignore[assignment]
    model.is_loaded_in_4bit = plan["quantization.mode"] != "int8"  # type: ignore[assignment]
    return model


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The kind of most quantised layers, and the bytes that their weights take."""
    layers = already(run.model)
    if not layers:
        return [*found, Effective("quantization.mode", "none", "no layer has quantised weights")]
    kinds = Counter(mode_of(layer) for layer in layers)
    weights: list[Any] = [layer.weight for layer in layers]
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    text = f"{len(layers)} linear layers with {size / 2**20:.1f} MiB of weights"
    value = next(iter(kinds)) if len(kinds) == 1 else sorted(kinds)
    found = [*found, Effective("quantization.mode", value, text)]
    states = [s for weight in weights if (s := getattr(weight, "quant_state", None)) is not None]
    if states and plan.get("quantization.double") is not None:
        found.append(Effective("quantization.double", bool(states[0].nested), "state of the first layer's weight"))
    return found
