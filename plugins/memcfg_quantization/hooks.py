"""Implementations of the quantization plugin's hooks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from memcfg import Plan, Problem, RunError, hookimpl
from memcfg.arriving import arrive
from memcfg.engine.evidence import Effective
from memcfg_quantization.layers import already, forget_inputs, mode_of, one_product, quantise, unpacked
from memcfg_quantization.simulated import stand_ins

TEACHER = "gkd.teacher"
"""The option that names a teacher."""


@hookimpl(produces="quantized")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model frozen, on its device, with the weights of its linear layers in few bits.

    Raises `RunError` for a model that is quantised in another way already."""
    if plan["quantization.mode"] == "none":  # only a teacher is quantised
        arrive(model)
        return model
    if plain := unpacked(model):
        text = f"`{plan.get('model.path')}` says that its weights are quantised, and those of `{plain[0]}` are not"
        raise RunError(Problem(text, key="model.path", fix="take `quantization_config` out of its `config.json`"))
    other = sorted({mode_of(layer) for layer in already(model)} - {plan["quantization.mode"]})
    if other:
        text = f"the model's weights are {', '.join(f'`{mode}`' for mode in other)} already"
        raise RunError(Problem(text, key="quantization.mode", fix=f"quantization.mode={other[0]}"))
    model.requires_grad_(False)
    _pack(plan, model, "quantization.mode")
    forget_inputs(model)
    one_product(model)
    # what peft asks to know which of its layers fit
    model.is_loaded_in_8bit = plan["quantization.mode"] == "int8"  # type: ignore[assignment]
    model.is_loaded_in_4bit = plan["quantization.mode"] != "int8"  # type: ignore[assignment]
    return model


@hookimpl
def memcfg_companion(plan: Plan, model: torch.nn.Module, key: str) -> torch.nn.Module:
    """A teacher with the weights of its linear layers in few bits, where `quantization.teacher` says so."""
    if key == TEACHER and (plan.get("quantization.teacher") or "none") != "none" and not already(model):
        _pack(plan, model, "quantization.teacher")
    return model


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """Products with packed weights, taken apart as a GPU computes them."""
    return {**stands_in, **stand_ins()} if plan.device == "cuda" else stands_in


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The kind of most quantised layers, and the bytes that their weights take."""
    if plan.get("quantization.teacher") is not None:
        teacher = getattr(run.objective, "teacher", None)
        found = [*found, Effective("quantization.teacher", *_seen(already(teacher) if teacher is not None else []))]
    layers = already(run.model)
    if not layers:
        return [*found, Effective("quantization.mode", "none", "no layer has quantised weights")]
    found = [*found, Effective("quantization.mode", *_seen(layers))]
    weights: list[Any] = [layer.weight for layer in layers]
    states = [s for weight in weights if (s := getattr(weight, "quant_state", None)) is not None]
    if states and plan.get("quantization.double") is not None:
        nested = [bool(state.nested) for state in states]
        found.append(Effective("quantization.double", _one(nested), f"scales of {sum(nested)} of {len(states)} layers"))
    if states:
        found += _dtypes(plan, layers)
    return found


def _dtypes(plan: Plan, layers: Sequence[Any]) -> list[Effective]:
    """The dtypes that four-bit layers compute in and pack in, where the plan says which."""
    four = [layer for layer in layers if mode_of(layer) != "int8"]
    seen = {
        "quantization.compute_dtype": [_name(layer.compute_dtype) for layer in four],
        "quantization.storage": [_name(layer.weight.dtype) for layer in four],
    }
    return [
        Effective(key, _one(names), f"{len(names)} layers") for key, names in seen.items() if plan.get(key) is not None
    ]


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _one(values: Sequence[Any]) -> Any:
    """The value that all have, or those that there are."""
    different = sorted(set(values))
    return different[0] if len(different) == 1 else different


def _pack(plan: Plan, model: torch.nn.Module, key: str) -> None:
    """Pack the weights of the model's linear layers, as the option `key` says."""
    # it would say at every product that it computes in float16, which is what eight-bit products are made of
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    quantise(plan, model, key)


def _seen(layers: Sequence[Any]) -> tuple[Any, str]:
    """The kind of quantised layers, and the bytes that their weights take."""
    if not layers:
        return "none", "no layer has quantised weights"
    kinds = Counter(mode_of(layer) for layer in layers)
    size = sum(layer.weight.numel() * layer.weight.element_size() for layer in layers)
    value = next(iter(kinds)) if len(kinds) == 1 else sorted(kinds)
    return value, f"{len(layers)} linear layers with {size / 2**20:.1f} MiB of weights"
