"""The trained model's weights under the names of a checkpoint, an adapter's change added: what vLLM loads.

Nothing is changed in the trained model. An adapted layer is copied, merged and thrown away, one at a time: adding a change to
weights of 16 bits and taking it away again, as is done elsewhere, leaves them rounded a little differently each time."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from memcfg import Problem, RunError
from memcfg.engine.forward import causal_model
from memcfg_vllm.packed import packed, whole

Named = Iterator[tuple[str, torch.Tensor]]


def current(model: torch.nn.Module) -> Named:
    """Names and whole tensors, as a checkpoint of the architecture has them; a weight that is shared comes once. Sharded
    parameters are gathered, so every process must go through all of them.

    `model` may be wrapped (DDP, FSDP2, peft). Raises `RunError` for an adapter that cannot be added to the weights."""
    from transformers.core_model_loading import revert_weight_conversion

    inner: Any = causal_model(model)
    if not _converted(inner):
        yield from _own(inner)
        return
    # some architectures are laid out differently in memory and in files: experts in one tensor, say
    yield from revert_weight_conversion(inner, dict(_own(inner))).items()


def described(inner: Any) -> Any:
    """The model's configuration, which names its class: vLLM would take a model without one for something that only embeds."""
    config = copy.deepcopy(inner.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # what is given is whole
    # FSDP2 puts a class of its own before the model's
    config.architectures = [next(c.__name__ for c in type(inner).__mro__ if not c.__name__.startswith("FSDP"))]
    return config


def dtype_of(inner: Any) -> torch.dtype:
    """The type of the model's weights that are not packed; its embeddings are never."""
    found: torch.dtype = inner.get_input_embeddings().weight.dtype
    return found


def vocabulary(model: torch.nn.Module) -> int:
    """How many tokens the model knows; a number of its configuration, as its weights may be shards."""
    inner: Any = causal_model(model)
    return int(inner.config.get_text_config().vocab_size)


def version(model: torch.nn.Module) -> int:
    """A number that changes whenever a trained parameter is written to, as far as torch counts it."""
    return sum(p._version for p in model.parameters() if p.requires_grad)


def check(model: torch.nn.Module) -> None:
    """Raises `RunError` where the weights alone do not say what the trained model does."""
    inner: Any = causal_model(model)
    if hasattr(model, "active_peft_config") and getattr(model.active_peft_config, "is_prompt_learning", False):
        text = "tokens that are trained before each prompt are no weights that vLLM could take over"
        raise RunError(Problem(text, key="peft.method", fix="generation.backend=transformers"))
    head, embeddings = inner.get_output_embeddings(), inner.get_input_embeddings()
    if getattr(inner.config.get_text_config(), "tie_word_embeddings", False) and _apart(head, embeddings):
        text = "head and embeddings share a weight, and only one of them is adapted: vLLM would lose the change"
        raise RunError(Problem(text, key="peft.head", fix="peft.head=false"))


def _apart(head: Any, embeddings: Any) -> bool:
    return any(hasattr(part, "base_layer") or hasattr(part, "modules_to_save") for part in (head, embeddings))


def _converted(inner: Any) -> bool:
    from transformers.conversion_mapping import get_model_conversion_mapping

    known = getattr(inner, "_weight_conversions", None)
    return bool(get_model_conversion_mapping(inner, add_legacy=False) if known is None else known)


def _own(inner: torch.nn.Module) -> Named:
    """Under the names that the model had before it was adapted."""
    seen: set[int] = set()
    dtype = dtype_of(inner)
    for prefix, layer, made in _layers(inner, dtype):
        for name, tensor in layer.named_parameters(recurse=False):
            if made or id(tensor) not in seen:
                yield f"{prefix}.{name}" if prefix else name, _whole(tensor)
            if not made:  # what is thrown away may leave its id to another
                seen.add(id(tensor))


def _layers(
    module: torch.nn.Module, dtype: torch.dtype, prefix: str = "", made: bool = False
) -> Iterator[tuple[str, torch.nn.Module, bool]]:
    """The modules that hold parameters, adapted and packed ones as whole ones without an adapter, and whether they were made."""
    plain = _unadapted(module, dtype)
    if plain is not module:
        yield from _layers(plain, dtype, prefix, made=True)
        return
    yield prefix, module, made
    for name, child in module.named_children():
        yield from _layers(child, dtype, f"{prefix}.{name}" if prefix else name, made)


def _unadapted(module: Any, dtype: torch.dtype) -> torch.nn.Module:
    """A layer with its adapter's change in its weight, unpacked to `dtype` where it is packed; the copy that is trained in a
    layer's place; or the module itself."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    if hasattr(module, "modules_to_save") and hasattr(module, "original_module"):
        active = [name for name in module.active_adapters if name in module.modules_to_save]
        chosen: torch.nn.Module = module.modules_to_save[active[0]] if active else module.original_module
        return chosen
    if packed(module):
        return whole(module, dtype)
    if not isinstance(module, BaseTunerLayer):
        return module  # type: ignore[no-any-return]
    copied: Any = copy.deepcopy(module)
    with torch.no_grad():
        copied.merge()
    base: torch.nn.Module = copied.get_base_layer()
    return base


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    found = tensor.detach()
    gather = getattr(found, "full_tensor", None)
    return found if gather is None else gather()
