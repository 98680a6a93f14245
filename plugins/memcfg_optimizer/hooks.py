"""Builds the optimizer over the parameters that require gradients, and reads back what it holds."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

from memcfg import Plan, hookimpl
from memcfg.engine.evidence import Effective
from memcfg_optimizer.in_backward import InBackward
from memcfg_optimizer.kinds import KINDS, SEEDED, SETTINGS, built, name_of


@hookimpl
def memcfg_optimizer(plan: Plan, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The plan's optimizer over all trainable parameters, tied ones once."""
    name = plan["optimizer.name"]
    values = {key: plan.get(f"optimizer.{key}") for key in SETTINGS.get(name, ())}
    if "betas" in values:
        values["betas"] = tuple(map(float, values["betas"]))
    if "fused" in values:
        values["fused"] = bool(values["fused"]) and plan.device == "cuda" and name != "adamw_offload"
    if name in SEEDED:
        values["seed"] = int(plan.get("run.seed") or 0)
        values["kernel"] = plan.device == "cuda" and find_spec("triton") is not None
    made = built(name, groups(model, plan["optimizer.weight_decay"]), lr=plan["run.learning_rate"], **values)
    return InBackward(made) if plan.get("optimizer.in_backward") else made


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The optimizer's class and how much of the model it holds; its settings as its groups have them."""
    optimizer = run.optimizer
    inner = optimizer.inner if isinstance(optimizer, InBackward) else optimizer
    held = [p for group in optimizer.param_groups for p in group["params"]]
    seen = (
        f"{type(inner).__name__} over {len(held)} tensors, {sum(p.numel() for p in held):,} parameters{_states(inner)}"
        + (f", moved {inner.kernels} times by one kernel" if getattr(inner, "kernels", 0) else "")
    )
    if plan["optimizer.name"] in KINDS or name_of(inner) in KINDS:
        found = [*found, Effective("optimizer.name", name_of(inner), seen)]
    decays = max(group["weight_decay"] for group in optimizer.param_groups)
    found = [*found, Effective("optimizer.weight_decay", decays, "largest of its parameter groups")]
    if plan.get("optimizer.in_backward") is not None:
        moved = optimizer.moved if isinstance(optimizer, InBackward) else 0
        text = f"{moved} parameters moved during backward passes"
        found.append(Effective("optimizer.in_backward", moved > 0, text))
    first, read = optimizer.param_groups[0], SETTINGS.get(plan["optimizer.name"], ())
    for key in ("betas", "eps", "fused", "momentum"):
        if key in read and key in first:
            value = list(first[key]) if key == "betas" else bool(first[key]) if key == "fused" else first[key]
            found.append(Effective(f"optimizer.{key}", value, "its parameter groups"))
    return found


def groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: matrices with the decay, vectors without. One group where nothing is decayed."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not weight_decay:
        return [{"params": parameters, "weight_decay": 0.0}]
    matrices = [p for p in parameters if p.dim() >= 2]
    vectors = [p for p in parameters if p.dim() < 2]
    split = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in split if group["params"]]


def _states(optimizer: torch.optim.Optimizer) -> str:
    """Bytes of state for each parameter, where a step has made states."""
    states = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    size, weights = sum(v.numel() * v.element_size() for v in states), sum(p.numel() for p in optimizer.state)
    where = {v.device.type for v in states if v.numel() > 1}
    return f", {size / weights:.2f} bytes of state each on {'/'.join(sorted(where)) or 'no device'}" if weights else ""
