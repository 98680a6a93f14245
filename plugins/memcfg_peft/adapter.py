"""Puts an adapter into a model, and takes it out again for saving."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import peft
import torch

from memcfg import Plan, Problem, RunError
from memcfg.engine.forward import VIRTUAL, causal_model, detach_head
from memcfg_peft.configs import config_of

ADAPTER = "default"

OTHERWISE = (r"Invalid `\w+` \(.*Adjusted", r"The following \w+ keys did not match")
"""Warnings of peft that say that a setting was changed or left out."""

PROJECTIONS = ("vera_A", "vera_B")
"""Buffers of the model that every layer of a VeRA adapter multiplies with."""


def adapted(plan: Plan, model: torch.nn.Module) -> peft.PeftModel:
    """The model frozen, with the plan's adapter in it. Its weights are drawn from `run.seed`, the same on every device.

    Raises `RunError` for layers that are not there and for what peft refuses."""
    config = config_of(plan, model)
    meta = next(model.parameters()).is_meta
    with _drawn_from(plan["run.seed"]), torch.device("meta" if meta else "cpu"), _quiet():
        try:
            made = peft.get_peft_model(model, config, autocast_adapter_dtype=False)  # type: ignore[arg-type]
        except (ValueError, TypeError, NotImplementedError, ImportError, UserWarning, RuntimeWarning) as error:
            text = f"peft cannot adapt `{type(model).__name__}`: {error}"
            raise RunError(Problem(text, key="peft.method")) from error
    _cast(made, plan["peft.dtype"], model.dtype)  # type: ignore[arg-type]
    device = next(model.parameters()).device
    for parameter in trainable(made):
        parameter.data = parameter.data.to(device)
    if plan["peft.method"] in ("prompt", "p_tuning"):
        setattr(causal_model(made), VIRTUAL, plan["peft.virtual_tokens"])
    return made


def trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def adapted_layers(model: torch.nn.Module) -> list[str]:
    """The names of the layers that hold the adapter."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return [name for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)]


def per_leaf(names: list[str]) -> str:
    """How often each layer is adapted: `q_proj: 2, v_proj: 2`."""
    counts = Counter(name.rpartition(".")[2] for name in names)
    return ", ".join(f"{leaf}: {count}" for leaf, count in sorted(counts.items()))


def merged(model: peft.PeftModel) -> torch.nn.Module:
    """The model with the adapter's change in its own weights, and no adapter: what the whole model is saved from.

    A head that was adapted or trained apart from the embeddings that it shared its weight with gets a weight of its own,
    and the configuration says so: else the change would move the embeddings too, or be lost when the model is loaded."""
    inner: Any = causal_model(model)
    detach_head(model)
    _untie(inner)
    with _quiet():
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


def _cast(model: torch.nn.Module, chosen: str, base: torch.dtype) -> None:
    """What is trained, in the plan's dtype, and what it is multiplied with. Layers that are trained whole, too."""
    dtype = base if chosen == "base" else getattr(torch, chosen)
    for name, buffer in model.named_buffers():
        if any(part in PROJECTIONS for part in name.split(".")):
            buffer.data = buffer.data.to(dtype)
    for parameter in trainable(model):
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)


@contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """peft warns of what is settled here (shared embeddings, layers that are trained whole), and asks Transformers by a
    name that it has left behind. Where it warns that it did something else than it was asked for, that is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        for message in OTHERWISE:
            warnings.filterwarnings("error", message)
        yield
