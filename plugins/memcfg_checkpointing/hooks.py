"""Switches checkpointing on in the model's layers, and counts which of them a real backward pass computed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.module_tracker import ModuleTracker
from transformers.modeling_layers import GradientCheckpointingLayer

from memcfg import Plan, Problem, RunError, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.engine.forward import causal_model
from memcfg_checkpointing.selective import Selection, context_function

_WATCH = "_memcfg_recomputed"


@hookimpl(consumes=("quantized", "adapter", "layers"))
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model with its layers checkpointed as the plan says. Watched until the first evidence is read."""
    mode, every = plan["checkpointing.mode"], plan.get("checkpointing.every") or 1
    layers, selection = list(repeated_layers(model)), Selection(attention_of(model)) if mode == "selective" else None
    if mode != "none":
        check(every, layers)
        enable(model, reentrant=plan["checkpointing.reentrant"], selection=selection)
        thin(model, layers, every)
    elif any(flagged(model)):
        disable(model)
    setattr(
        model, _WATCH, Recomputed(layers, wanted=0 if mode == "none" else len(layers[::every]), selection=selection)
    )
    return model


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """Layers that the first step's backward pass computed again, what they kept, and by which of autograd's ways."""
    watch: Recomputed | None = getattr(run.model, _WATCH, None)
    if watch is None:
        return found
    again, layers = len(watch.seen), len(watch.layers)
    watch.close()
    text = f"{again} of {layers} layers computed again in a step"
    if watch.selection is not None:
        text += f"; {watch.selection.kept} results of attention kept"
    found = [*found, Effective("checkpointing.mode", watch.mode(), text)]
    if again and again == watch.wanted:
        numbers = ", ".join(map(str, sorted(watch.seen)[:4])) + (", ..." if again > 4 else "")
        found.append(Effective("checkpointing.every", watch.every(), f"the first are layers {numbers}"))
    if again:
        ways = {way for module in flagged(run.model) if (way := _reentrant(module)) is not None}
        found += [
            Effective("checkpointing.reentrant", way, "argument of the layers' checkpoint function") for way in ways
        ]
    return found


def attention_of(model: torch.nn.Module) -> str | None:
    """The name by which the model's layers look up their attention."""
    config: Any = getattr(causal_model(model), "config", None)
    return None if config is None else getattr(config.get_text_config(), "_attn_implementation", None)


def check(every: int, layers: list[torch.nn.Module]) -> None:
    """Raises `RunError` where there are not so many layers."""
    if every > max(1, len(layers)):
        text = f"{every} is more than the model has layers that can be computed again ({len(layers)})"
        raise RunError(
            Problem(text, key="checkpointing.every", fix=f"at most `checkpointing.every={len(layers) or 1}`")
        )


def enable(model: Any, *, reentrant: bool, selection: Selection | None = None) -> None:
    """Checkpoint every layer of a Transformers model. Raises `RunError`, leaving all off, where it has no support."""
    arguments: dict[str, Any] = {"use_reentrant": reentrant}
    if selection is not None:
        arguments["context_fn"] = context_function(selection)
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
    if reentrant and not getattr(causal_model(model), "_require_grads_hooks", None):
        # the re-entrant way gives no gradient to a layer none of whose inputs needs one, as after frozen embeddings
        model.enable_input_require_grads()


def thin(model: torch.nn.Module, layers: list[torch.nn.Module], every: int) -> None:
    """Switch checkpointing off again in all layers but each `every`-th, from the first.

    Raises `RunError` where the layers are not switched one by one."""
    if every == 1:
        return
    if not all(isinstance(layer, GradientCheckpointingLayer) for layer in layers):
        text = f"the layers of `{type(causal_model(model)).__name__}` can only be computed again all together"
        raise RunError(Problem(text, key="checkpointing.every", fix="checkpointing.every=1"))
    for index, layer in enumerate(layers):
        if index % every:
            setattr(layer, "gradient_checkpointing", False)  # noqa: B010


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

    def __init__(
        self, layers: list[torch.nn.Module], *, wanted: int | None = None, selection: Selection | None = None
    ) -> None:
        self.layers, self.seen, self.selection = layers, set[int](), selection
        self.wanted = len(layers) if wanted is None else wanted
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

    def mode(self) -> str:
        """What has happened, by the name of the mode that does it; how many layers where it is none of them."""
        if not self.seen:
            return "none"
        if len(self.seen) != self.wanted:
            return f"{len(self.seen)} of {len(self.layers)} layers"
        return "selective" if self.selection is not None and self.selection.kept else "full"

    def every(self) -> int | list[int]:
        """One layer in how many ran again, from the first; which ones, where it is no such number."""
        found = sorted(self.seen)
        step = found[1] if len(found) > 1 else len(self.layers)
        return step if found == list(range(0, len(self.layers), step)) else found

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
