"""Puts an adapter into a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import peft
import torch

from memcfg import Plan, Problem, RunError
from memcfg.engine.forward import VIRTUAL, causal_model
from memcfg_peft.configs import config_of
from memcfg_peft.continued import continued
from memcfg_peft.merging import refuse_unmergeable
from memcfg_peft.warned import quiet

ADAPTER = "default"

PROJECTIONS = ("vera_A", "vera_B")
"""Buffers of the model that every layer of a VeRA adapter multiplies with."""


def adapted(plan: Plan, model: torch.nn.Module) -> peft.PeftModel:
    """The model frozen, with the plan's adapter in it. Its weights are drawn from `run.seed`, the same on every device.

    Raises `RunError` for layers that are not there and for what peft refuses."""
    config = config_of(plan, model)
    meta = next(model.parameters()).is_meta
    with _drawn_from(plan["run.seed"]), torch.device("meta" if meta else "cpu"), quiet():
        try:
            made = peft.get_peft_model(model, config, autocast_adapter_dtype=False)  # type: ignore[arg-type]
        except Exception as error:  # whatever peft trips over: settings of `peft.config` reach it as they are
            text = f"peft cannot adapt `{type(model).__name__}`: {error}"
            raise RunError(Problem(text, key="peft.config" if plan.get("peft.config") else "peft.method")) from error
    if plan["peft.merge"]:
        refuse_unmergeable(made)
    _cast(made, plan["peft.dtype"], model.dtype)  # type: ignore[arg-type]
    device = next(model.parameters()).device
    for parameter in trainable(made):
        parameter.data = parameter.data.to(device)
    if plan["peft.method"] in ("prompt", "p_tuning"):
        setattr(causal_model(made), VIRTUAL, plan["peft.virtual_tokens"])
    continued(made)
    return made


def trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


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
