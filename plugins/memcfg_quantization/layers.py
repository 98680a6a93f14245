"""Linear layers with weights in four or eight bits, made of those of a model, one at a time."""

from __future__ import annotations

from typing import Any

import bitsandbytes as bnb
import torch

from memcfg import Plan, Problem, RunError
from memcfg.engine.forward import causal_model

KINDS = (bnb.nn.Linear4bit, bnb.nn.Linear8bitLt)


def quantise(plan: Plan, model: torch.nn.Module, device: torch.device, key: str = "quantization.mode") -> int:
    """Replace every linear layer but the head, as the option `key` says; returns how many. The model's weights may lie on the host: only one of
    them at a time is on `device` whole.

    Raises `RunError` where nothing is left to quantise."""
    head = causal_model(model).get_output_embeddings()  # type: ignore[operator]
    found = [(n, m) for n, m in model.named_modules() if type(m) is torch.nn.Linear and m is not head]
    if not found and not already(model):
        text = f"`{type(causal_model(model)).__name__}` has no linear layer that could be quantised"
        raise RunError(Problem(text, key=key, fix=f"{key}=none"))
    for name, layer in found:
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, _made(plan, layer, device, plan[key]))
    return len(found)


def already(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers that are quantised."""
    return [m for m in model.modules() if isinstance(m, KINDS)]


def unpacked(model: torch.nn.Module) -> list[str]:
    """Layers of a kind that holds packed weights whose weights are plain numbers: the folder said one thing and held another."""
    packed = (bnb.nn.Params4bit, bnb.nn.Int8Params)
    return [name for name, m in model.named_modules() if isinstance(m, KINDS) and not isinstance(m.weight, packed)]


def mode_of(layer: torch.nn.Module) -> str:
    """The `quantization.mode` of one layer."""
    weight: Any = layer.weight
    return "int8" if isinstance(layer, bnb.nn.Linear8bitLt) else str(weight.quant_type)


def _made(plan: Plan, layer: torch.nn.Linear, device: torch.device, mode: str) -> torch.nn.Module:
    shape = (layer.in_features, layer.out_features)
    bias, weight = layer.bias is not None, layer.weight.detach()
    made: Any
    if mode == "int8":
        made = bnb.nn.Linear8bitLt(*shape, bias=bias, has_fp16_weights=False, device="meta")
        made.weight = bnb.nn.Int8Params(weight.clone(), requires_grad=False, has_fp16_weights=False)
    else:
        chosen = plan.get("quantization.compute_dtype")
        made = bnb.nn.Linear4bit(
            *shape, bias=bias, compute_dtype=getattr(torch, chosen) if chosen else weight.dtype,
            quant_type=mode, device="meta",
        )  # fmt: skip
        made.compute_type_is_set = True
        # In eval mode on a CPU it would lay its weights out anew, in a form that cannot be trained through any more.
        made.support_avx512bf16_for_cpu = False
        made.weight = bnb.nn.Params4bit(
            weight.clone(), requires_grad=False, quant_type=mode,
            compress_statistics=bool(plan.get("quantization.double")),
            quant_storage=getattr(torch, plan.get("quantization.storage") or "uint8"), module=made,
        )  # fmt: skip
    made.bias = None if layer.bias is None else torch.nn.Parameter(layer.bias.detach(), requires_grad=False)
    layer.weight = None  # type: ignore[assignment]
    if device.type == "meta":  # moving to `meta` packs nothing, and the memory simulator wants to see it
        made.weight = made.weight._quantize(device)
    return made.to(device).train(layer.training)  # type: ignore[no-any-return]
