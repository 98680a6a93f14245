"""Linear layers with weights in four or eight bits, made of those of a model, one at a time."""

from __future__ import annotations

from types import MethodType
from typing import Any

import bitsandbytes as bnb
import torch

from memcfg import Plan, Problem, RunError
from memcfg.arriving import arrive
from memcfg.engine.forward import causal_model

KINDS = (bnb.nn.Linear4bit, bnb.nn.Linear8bitLt)


def quantise(plan: Plan, model: torch.nn.Module, key: str = "quantization.mode") -> int:
    """Replace every linear layer but the head, as the option `key` says; returns how many. The weights of a model that is held
    (see `memcfg.arriving`) are brought on the way, so that only one of them at a time is on the device whole.

    Raises `RunError` where nothing is left to quantise."""
    head = causal_model(model).get_output_embeddings()  # type: ignore[operator]
    found = {n for n, m in model.named_modules() if type(m) is torch.nn.Linear and m is not head}
    if not found and not already(model):
        text = f"`{type(causal_model(model)).__name__}` has no linear layer that could be quantised"
        raise RunError(Problem(text, key=key, fix=f"{key}=none"))
    # made where it was needed first, which may have been a simulation, where nothing has values
    bnb.functional.name2qmap["dynamic"] = bnb.functional.create_dynamic_map()
    arrive(model, lambda name, layer: _made(plan, layer, plan[key]) if name in found else layer)  # type: ignore[arg-type]
    return len(found)


def one_product(model: torch.nn.Module) -> None:
    """Let layers with eight-bit weights that lie on a CPU compute in eval mode what they compute in train mode.

    bitsandbytes rounds what it multiplies them with in eval mode alone there, so that a reference, or a held-out loss, would be
    that of another model. They know no other difference between the modes."""
    for layer in already(model):
        if isinstance(layer, bnb.nn.Linear8bitLt) and layer.weight.device.type == "cpu":
            layer.train(True).train = MethodType(_as_it_is, layer)  # type: ignore[method-assign]


def _as_it_is(layer: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
    return layer


def forget_inputs(model: torch.nn.Module) -> None:
    """Let no product with eight-bit weights keep its input.

    bitsandbytes keeps it with the product, never reads it where the weights are frozen, and out of sight of checkpointing, so
    that the inputs of all layers would stay until the backward pass."""
    for layer in already(model):
        if isinstance(layer, bnb.nn.Linear8bitLt):
            layer.register_forward_hook(_forget)


def _forget(layer: torch.nn.Module, inputs: Any, out: torch.Tensor) -> None:
    product: Any = out.grad_fn
    if isinstance(getattr(product, "tensors", None), tuple):
        product.tensors = (None, None, None)


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


def _made(plan: Plan, layer: torch.nn.Linear, mode: str) -> torch.nn.Module:
    """The layer with its weight packed, on the device where it is."""
    bias, weight = layer.bias is not None, layer.weight.detach()
    made: Any  # with a weight of one number, which is replaced: on `meta` a whole one would be taken for memory
    if mode == "int8":
        made = bnb.nn.Linear8bitLt(1, 1, bias=bias, has_fp16_weights=False, device="meta")
        made.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
    else:
        chosen = plan.get("quantization.compute_dtype")
        made = bnb.nn.Linear4bit(
            1, 1, bias=bias, compute_dtype=getattr(torch, chosen) if chosen else weight.dtype,
            quant_type=mode, device="meta",
        )  # fmt: skip
        made.compute_type_is_set = True
        # In eval mode on a CPU it would lay its weights out anew, in a form that cannot be trained through any more.
        made.support_avx512bf16_for_cpu = False
        made.weight = bnb.nn.Params4bit(
            weight, requires_grad=False, quant_type=mode,
            compress_statistics=bool(plan.get("quantization.double")),
            quant_storage=getattr(torch, plan.get("quantization.storage") or "uint8"), module=made,
        )  # fmt: skip
    made.in_features, made.out_features = layer.in_features, layer.out_features
    made.bias = None if layer.bias is None else torch.nn.Parameter(layer.bias.detach(), requires_grad=False)
    layer.weight = None  # type: ignore[assignment]  # it goes as soon as it is packed
    # Asked for by name: a move packs only what comes from host memory.
    made.weight = made.weight._quantize(weight.device)
    return made.train(layer.training)  # type: ignore[no-any-return]
