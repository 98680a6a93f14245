"""Builds the optimizer over the parameters that require gradients, and reads back what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from memcfg import Plan, Problem, RequestError, hookimpl
from memcfg.engine.evidence import Effective


@hookimpl
def memcfg_optimizer(plan: Plan, model: torch.nn.Module) -> torch.optim.Optimizer:
    """AdamW over all trainable parameters, tied ones once."""
    return torch.optim.AdamW(
        groups(model, plan["optimizer.weight_decay"]),
        lr=plan["run.learning_rate"],
        betas=_betas(plan["optimizer.betas"]),
        eps=plan["optimizer.eps"],
        fused=plan["optimizer.fused"] and plan.device == "cuda",
    )


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The optimizer's class and how much of the model it holds; its settings as its groups have them."""
    optimizer = run.optimizer
    held = [p for group in optimizer.param_groups for p in group["params"]]
    kind = type(optimizer).__name__
    seen = f"{kind} over {len(held)} tensors, {sum(p.numel() for p in held):,} parameters"
    first = optimizer.param_groups[0]
    decays = max(group["weight_decay"] for group in optimizer.param_groups)
    return [
        *found,
        Effective("optimizer.name", kind.lower(), seen),
        Effective("optimizer.weight_decay", decays, "largest of its parameter groups"),
        Effective("optimizer.betas", list(first["betas"]), "its parameter groups"),
        Effective("optimizer.eps", first["eps"], "its parameter groups"),
        Effective("optimizer.fused", bool(first["fused"]), "its parameter groups"),
    ]


def groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: matrices with the decay, vectors without. One group where nothing is decayed."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not weight_decay:
        return [{"params": parameters, "weight_decay": 0.0}]
    matrices = [p for p in parameters if p.dim() >= 2]
    vectors = [p for p in parameters if p.dim() < 2]
    split = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in split if group["params"]]


def _betas(betas: Sequence[float]) -> tuple[float, float]:
    if len(betas) != 2 or not all(isinstance(b, (int, float)) and 0.0 <= b < 1.0 for b in betas):
        raise RequestError(Problem(f"needs two numbers from 0 to below 1, not {list(betas)}", key="optimizer.betas"))
    return float(betas[0]), float(betas[1])
