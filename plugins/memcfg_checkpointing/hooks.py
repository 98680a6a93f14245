"""Switches checkpointing on in the model's layers, and counts which of them a real backward pass computed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.module_tracker import ModuleTracker
from transformers.modeling_layers import GradientCheckpointingLayer

from memcfg import Plan, Problem, RunError, hookimpl
from memcfg.engine.evidence import Effective

_WATCH = "_memcfg_recomputed"


@hookimpl
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model with every layer checkpointed, or with none. Watched until the first evidence is read."""
    mode = plan["checkpointing.mode"]
    if mode == "selective":
        text = "`selective` cannot be run yet: only whole layers can be computed again"
        raise RunError(Problem(text, key="checkpointing.mode", fix="`checkpointing=full` keeps less and takes longer"))
    layers = list(repeated_layers(model))
    if mode == "full":
        enable(model, reentrant=plan["checkpointing.reentrant"])
    elif any(flagged(model)):
        disable(model)
    setattr(model, _WATCH, Recomputed(layers))
    return model


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """Layers that the first step's backward pass computed again, and by which of autograd's ways."""
    watch: Recomputed | None = getattr(run.model, _WATCH, None)
    if watch is None:
        return found
    again, layers = len(watch.seen), len(watch.layers)
    watch.close()
    mode = "none" if not again else "full" if again == layers else f"{again} of {layers} layers"
    found = [*found, Effective("checkpointing.mode", mode, f"{again} of {layers} layers computed again in a step")]
    if again:
        ways = {way for module in flagged(run.model) if (way := _reentrant(module)) is not None}
        found += [
            Effective("checkpointing.reentrant", way, "argument of the layers' checkpoint function") for way in ways
        ]
    return found


def enable(model: Any, *, reentrant: bool) -> None:
    """Checkpoint every layer of a Transformers model. Raises `RunError`, leaving all off, where it has no support."""
    arguments = {"use_reentrant": reentrant}
    try:
        if hasattr(model, "activation_checkpointing_enable"):  # what later releases of Transformers call it
            model.activation_checkpointing_enable(activation_checkpointing_kwargs=arguments)
        else:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=arguments)
    except (AttributeError, TypeError, ValueError) as error:
        for module in flagged(model):
            setattr(module, "gradient_checkpointing", False)  # noqa: B010 (a module's attributes are typed as tensors)
        text = f"`{type(model).__name__}` cannot compute its layers again: {error}"
        raise RunError(
            Problem(text, key="checkpointing.mode", fix="`checkpointing=none` keeps its activations")
        ) from error
    if reentrant and not getattr(model, "_require_grads_hooks", None):
        # the re-entrant way gives no gradient to a layer none of whose inputs needs one, as after frozen embeddings
        model.enable_input_require_grads()


def disable(model: Any) -> None:
    """Checkpoint no layer."""
    if hasattr(model, "activation_checkpointing_disable"):
        model.activation_checkpointing_disable()
    else:
        model.gradient_checkpointing_disable()


def flagged(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules that have checkpointing switched on."""
    return (module for module in model.modules() if getattr(module, "gradient_checkpointing", False) is True)


def repeated_layers(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The layers that can be checkpointed: those that say so, or else what lies in a list of a module that does."""
    own = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    holders = (module for module in model.modules() if hasattr(module, "gradient_checkpointing"))
    lists = (child for holder in holders for child in holder.children() if isinstance(child, torch.nn.ModuleList))
    return iter(own) if own else (layer for layers in lists for layer in layers)


class Recomputed:
    """Which of some layers ran during a backward pass: `seen` holds their indices.

    Looked at from their children, as a checkpoint may run a layer again without calling the layer itself."""

    def __init__(self, layers: list[torch.nn.Module]) -> None:
        self.layers, self.seen = layers, set[int]()
        self._tracker = ModuleTracker()
        self._hooks = [
            child.register_forward_pre_hook(self._noter(index))
            for index, layer in enumerate(layers)
            for child in layer.children()
        ]

    def _noter(self, index: int) -> Any:
        def note(module: torch.nn.Module, inputs: Any) -> None:
            if self._tracker.is_bw:
                self.seen.add(index)

        return note

    def close(self) -> None:
        """Stop looking."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copy of the model (a reference model, say) is not watched."""
        return


def _reentrant(module: torch.nn.Module) -> bool | None:
    keywords = getattr(getattr(module, "_gradient_checkpointing_func", None), "keywords", None) or {}
    return keywords.get("use_reentrant")
