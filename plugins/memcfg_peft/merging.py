"""A model with an adapter's change in its own weights."""

from __future__ import annotations

import copy
from typing import Any

import peft
import torch

from memcfg import Problem, RunError
from memcfg.engine.forward import causal_model, detach_head
from memcfg_peft.layers import adapted_layers
from memcfg_peft.warned import quiet


def refuse_unmergeable(model: torch.nn.Module) -> None:
    """Raise `RunError` where an adapted layer could not be merged, which else is found at the end. Tried without values, on one
    layer of each kind."""
    tried = set()
    for name in adapted_layers(model):
        layer: Any = model.get_submodule(name)
        base = layer.get_base_layer()
        kind = (type(layer), type(base), getattr(base, "bias", None) is None)
        if kind in tried:
            continue
        tried.add(kind)
        tensors = [*layer.parameters(), *layer.buffers()]
        try:
            with torch.no_grad(), quiet():
                copy.deepcopy(layer, {id(t): _without_values(t) for t in tensors}).merge()
        except (RuntimeError, ValueError, NotImplementedError, AttributeError) as error:
            text = f"peft cannot merge the adapter into `{name}`: {error}"
            raise RunError(Problem(text, key="peft.merge", fix="peft.merge=false")) from error


def _without_values(tensor: torch.Tensor) -> torch.Tensor:
    made = tensor.detach().to("meta")
    return torch.nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else made


def merged(model: peft.PeftModel) -> torch.nn.Module:
    """The model with the adapter's change in its own weights, and no adapter: what the whole model is saved from.

    A head that was adapted or trained apart from the embeddings that it shared its weight with gets a weight of its own,
    and the configuration says so: else the change would move the embeddings too, or be lost when the model is loaded."""
    inner: Any = causal_model(model)
    detach_head(model)
    _untie(inner)
    with quiet():
        merged: Any = model.merge_and_unload() if hasattr(model.base_model, "merge_and_unload") else inner
    if merged.get_output_embeddings() is not None and not _share(merged):
        for config in {id(c): c for c in (merged.config, merged.config.get_text_config())}.values():
            config.tie_word_embeddings = False
    merged._hf_peft_config_loaded = False
    return merged


def _untie(inner: Any) -> None:
    """A copy of the embeddings' weight for an adapted head, and the other way round."""
    parts = [inner.get_output_embeddings(), inner.get_input_embeddings()]
    head = next((part for part in parts if hasattr(part, "base_layer")), None)
    if head is None:
        return
    weights = [getattr(part, "base_layer", part).weight for part in parts if part is not None]
    if len(weights) == 2 and weights[0] is weights[1]:
        head.base_layer.weight = torch.nn.Parameter(weights[0].detach().clone(), requires_grad=False)


def _share(model: Any) -> bool:
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight
