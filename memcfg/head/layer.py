"""The output layer of a model, taken apart: its weight and bias, and the low-rank changes that adapters add to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from memcfg import Problem, RunError
from memcfg.engine.forward import causal_model

PLAIN_PATH = "loss.type=nll loss.kernel=full  # the model's own logits, whole"
WHOLE_HEAD = "peft.head=false  # adapt other layers only"


@dataclass(frozen=True)
class LowRank:
    """A plain LoRA on the layer: `hidden -> scaling * up(down(dropout(hidden)))`."""

    down: torch.nn.Linear
    up: torch.nn.Linear
    dropout: torch.nn.Module
    scaling: float

    def low(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.down(self.dropout(hidden.to(self.down.weight.dtype))) * self.scaling


@dataclass(frozen=True)
class OutputLayer:
    """raw logits = hidden @ weight.T + bias + the sum of `deltas`. Parameters are whole: a sharded one is gathered once."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    deltas: tuple[LowRank, ...] = ()

    @property
    def vocabulary(self) -> int:
        return self.weight.shape[0]

    def parameters(self) -> Iterator[torch.Tensor]:
        yield self.weight
        if self.bias is not None:
            yield self.bias
        for delta in self.deltas:
            yield delta.down.weight
            yield delta.up.weight

    def low(self, hidden: torch.Tensor) -> torch.Tensor | None:
        """What all deltas make of hidden states [M, H] before their second factors: [M, sum of ranks]."""
        return torch.cat([delta.low(hidden) for delta in self.deltas], -1) if self.deltas else None

    def up(self) -> torch.Tensor | None:
        """The second factors side by side: [V, sum of ranks]."""
        return torch.cat([delta.up.weight for delta in self.deltas], -1) if self.deltas else None


def output_layer(model: torch.nn.Module) -> OutputLayer:
    """The output layer as it is now, with the adapters that are active. Raises `RunError` for one that is not known."""
    module = _saved_copy(causal_model(model).get_output_embeddings())  # type: ignore[operator]
    linear = base_linear(module)
    bias = None if linear.bias is None else _whole(linear.bias)
    return OutputLayer(_whole(linear.weight), bias, () if module is linear else _deltas(module))


def output_head(model: torch.nn.Module) -> torch.nn.Linear:
    """The linear layer that makes the logits, without its adapters. Raises `RunError` where it is anything else."""
    return base_linear(_saved_copy(causal_model(model).get_output_embeddings()))  # type: ignore[operator]


def base_linear(module: Any) -> torch.nn.Linear:
    """The layer itself, or the one inside a plain LoRA."""
    if own_class(module) is torch.nn.Linear:
        return module
    if own_class(getattr(module, "base_layer", None)) is torch.nn.Linear and hasattr(module, "lora_A"):
        return module.base_layer
    kind = own_class(module)
    text = f"the output head is a `{kind.__name__}` of `{kind.__module__}`, whose product the kernel does not know"
    raise RunError(Problem(text, key="loss.kernel", fix=PLAIN_PATH))


def own_class(module: Any) -> type:
    """The class of a module; of one that FSDP2 shards, which has a class made for it, the class that it had before."""
    made = type(module)
    return made.__bases__[1] if made.__bases__[0].__name__ == "FSDPModule" and len(made.__bases__) > 1 else made


def _saved_copy(module: Any) -> Any:
    """The copy that PEFT trains in place of the layer (`modules_to_save`), where there is one and it is on."""
    if not (hasattr(module, "modules_to_save") and hasattr(module, "original_module")):
        return module
    active = [name for name in module.active_adapters if name in module.modules_to_save]
    return module.original_module if module.disable_adapters or not active else module.modules_to_save[active[0]]


def _deltas(module: Any) -> tuple[LowRank, ...]:
    if module.disable_adapters or module.merged:
        return ()
    return tuple(_delta(module, name) for name in module.active_adapters if name in module.lora_A)


def _delta(module: Any, name: str) -> LowRank:
    variant = getattr(module, "lora_variant", {}).get(name)
    if variant is not None or getattr(module, "use_dora", {}).get(name) or module.lora_B[name].bias is not None:
        what = type(variant).__name__ if variant is not None else "LoRA with a bias"
        text = (
            f"the output head's adapter `{name}` is no plain LoRA ({what}): its change cannot be added to the product"
        )
        raise RunError(Problem(text, key="peft.head", fix=WHOLE_HEAD))
    return LowRank(module.lora_A[name], module.lora_B[name], module.lora_dropout[name], module.scaling[name])


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    """A parameter that FSDP2 left sharded, gathered; any other as it is. Its gradient is the mean over processes, as
    FSDP2 makes it where it gathers itself."""
    gather = getattr(parameter, "full_tensor", None)
    if gather is None:
        return parameter
    from torch.distributed.tensor import Partial

    return gather(grad_placements=[Partial("avg")] * parameter.device_mesh.ndim)  # type: ignore[attr-defined]
