"""A trained model made ready to sample, and put back exactly as it was, after an error or an interrupt too.

What samples differently from what trains: eval mode (no dropout), no layer computed again, the key-value cache, an
attention kernel that knows a cache and left padding, and none of the generation defaults that came with the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from transformers import GenerationConfig

from memcfg.engine.forward import causal_model

CACHED = ("sdpa", "eager", "flash_attention_2", "flash_attention_3")
"""What Transformers calls the kernels that sample with a cache and padded prompts."""

SWITCH = "gradient_checkpointing"

LONGEST_CACHE = "_previous_max_cache_length"
"""Where Transformers keeps the longest static cache so far, to give all later ones its size: a round would depend on those before,
and a run that goes on has not seen them."""


@contextmanager
def sampling(model: torch.nn.Module) -> Iterator[Any]:
    """The model to call `generate` on: without DDP's wrapper, with its adapter."""
    inner: Any = model
    while isinstance(getattr(inner, "module", None), torch.nn.Module):
        inner = inner.module
    causal: Any = causal_model(inner)
    with ExitStack() as stack:
        for module in list(inner.modules()):
            stack.callback(_mode, module, module.training)
            if getattr(module, SWITCH, False) is True:
                replaced(stack, module, SWITCH, False)
        inner.eval()
        for config in {id(c): c for c in (causal.config, causal.config.get_text_config())}.values():
            if hasattr(config, "use_cache"):
                replaced(stack, config, "use_cache", True)
        if causal.config.get_text_config()._attn_implementation not in CACHED:
            stack.enter_context(attending(causal, "sdpa"))
        replaced(stack, causal, "generation_config", GenerationConfig())
        stack.callback(vars(causal).pop, LONGEST_CACHE, None)
        yield inner


@contextmanager
def attending(model: Any, name: str) -> Iterator[None]:
    """The model under another attention implementation."""
    before = model.config.get_text_config()._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Random numbers from `seed` inside, and every stream as it was afterwards. None draws from the streams as they are."""
    if seed is None:
        yield
        return
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def replaced(stack: ExitStack, target: Any, name: str, value: Any) -> None:
    stack.callback(setattr, target, name, getattr(target, name))
    setattr(target, name, value)


def _mode(module: torch.nn.Module, training: bool) -> None:
    module.training = training
