"""Implementations of the peft plugin's hooks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from peft.utils import ModulesToSaveWrapper

from memcfg import Plan, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.engine.forward import causal_model
from memcfg_peft.adapter import ADAPTER, adapted, trainable
from memcfg_peft.configs import CONFIGS, RANK, SAVED
from memcfg_peft.layers import adapted_layers, per_leaf
from memcfg_peft.matching import counted, matches
from memcfg_peft.merging import merged


@hookimpl(consumes=("quantized", "head"), produces="adapter")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model frozen, with the adapter in it."""
    return adapted(plan, model)


@hookimpl
def memcfg_export(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model with the adapter merged into its weights, where the plan asks for it."""
    return merged(model) if plan["peft.merge"] else model  # type: ignore[arg-type]


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The adapter's kind, where it lies, what it is made of, and that the first step moved all of it."""
    config = getattr(run.model, "peft_config", {}).get(ADAPTER)
    if config is None:
        return [*found, Effective("peft.method", "none", f"`{type(run.model).__name__}` holds no adapter")]
    layers, parameters = adapted_layers(run.model), trainable(run.model)
    method = next((name for name, kind in CONFIGS.items() if kind is type(config)), type(config).__name__)
    size = sum(p.numel() for p in parameters)
    where = f" beside {per_leaf(layers)}" if layers else ""
    found = [*found, Effective("peft.method", _moved(run, method), f"{size:,} trained weights{where}{_reached(run)}")]
    found += _dtype(plan["peft.dtype"], run.model, parameters)
    if asked := plan.get(SAVED):
        found.append(Effective(SAVED, *_whole(run.model, asked)))
    if method in RANK and plan.get("peft.rank") is not None:
        found.append(Effective("peft.rank", getattr(config, RANK[method]), "the adapter's configuration"))
    if method == "lora":
        found += _of_layers(run.model, config, bool(plan.get("peft.rslora")))
    return found


def _dtype(chosen: str, model: Any, parameters: list[torch.nn.Parameter]) -> list[Effective]:
    """What the adapter's weights are made of; `base` where that is the model's dtype and the plan says so."""
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in parameters})
    if not dtypes:
        return []
    if chosen == "base" and dtypes == [str(model.dtype).removeprefix("torch.")]:
        return [Effective("peft.dtype", "base", f"its weights are {dtypes[0]}, as the model's")]
    return [Effective("peft.dtype", dtypes[0] if len(dtypes) == 1 else dtypes, "its weights")]


def _of_layers(model: torch.nn.Module, config: Any, rooted: bool) -> list[Effective]:
    """What most of LoRA's layers multiply with, as the scale that gives it at their rank (`rooted`: at its square root), unless
    `peft.config` sets some apart; and whether they have magnitudes of their own."""
    layers = [m for m in model.modules() if isinstance(m, LoraLayer)]
    if not layers:
        return []
    apart = sum(ADAPTER in layer.lora_magnitude_vector for layer in layers)
    found = [Effective("peft.dora", 2 * apart > len(layers), f"magnitudes of {apart} of {len(layers)} layers")]
    if config.alpha_pattern:
        return found
    factors = Counter((layer.r[ADAPTER], layer.scaling[ADAPTER]) for layer in layers)
    (rank, factor), count = factors.most_common(1)[0]
    scale = round(factor * (rank**0.5 if rooted else rank), 6)
    what = f"{count} of {len(layers)} layers scale by {factor:g}"
    return [*found, Effective("peft.alpha", int(scale) if scale == int(scale) else scale, what)]


def _whole(model: torch.nn.Module, asked: list[str]) -> tuple[list[str], str]:
    """The entries all of whose layers are trained whole, and how many those are."""
    modules = dict(causal_model(model).named_modules())
    names, wrapped = list(modules), [n for n, m in modules.items() if isinstance(m, ModulesToSaveWrapper)]
    counts = counted(wrapped, asked)
    whole = [entry for entry in asked if counts[entry] and counts[entry] == len(matches(names, entry))]
    return whole, ", ".join(
        f"{entry}: {count}" for entry, count in counts.items()
    ) + " trained whole, without an adapter"


def _moved(run: Any, method: str) -> str:
    """The method, if every trained tensor had a gradient; else what is wrong."""
    still = _without_gradient(run)
    return f"{method}, of which {still} tensors got no gradient" if still else method


def _reached(run: Any) -> str:
    count = sum(len(group["params"]) for group in run.optimizer.param_groups)
    return f"; {count - _without_gradient(run)} of {count} tensors had a gradient"


def _without_gradient(run: Any) -> int:
    """Tensors that the optimizer holds and that got no gradient: seen while gradients are there, or by the states that
    a step left. Optimizers without states tell nothing afterwards."""
    state = run.optimizer.state
    held = [p for group in run.optimizer.param_groups for p in group["params"]]
    reached = [p.grad is not None or bool(state.get(p)) for p in held]
    return reached.count(False) if any(reached) else 0
