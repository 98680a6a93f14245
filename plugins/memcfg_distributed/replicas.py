"""`ddp`: every process holds the whole model, and gradients are averaged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState
from torch.nn.parallel import DistributedDataParallel
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from memcfg import Plan

LEFT = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
CONFIGURED: Mapping[str, Any] = {"accelerator_config": {"use_configured_state": True}}
"""Trainer takes Accelerate's state as it finds it."""


def fresh_state(*, cpu: bool, deepspeed: bool = False, **told: Any) -> PartialState:
    """Accelerate's state made anew. It is one for the process, and an earlier run may have left another, in variables of
    the environment too."""
    for name in [n for n in os.environ if n in LEFT or n.startswith(("FSDP_", "ACCELERATE_DEEPSPEED_"))]:
        del os.environ[name]
    # While an earlier run of ZeRO-3 is remembered, Transformers makes every new model in shards
    unset_hf_deepspeed_config()
    if deepspeed:
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    AcceleratorState._reset_state(reset_partial_state=True)
    return PartialState(cpu=cpu, **told)


def backend_of(device: str) -> dict[str, str]:
    return {"backend": "gloo"} if device == "cpu" else {}


class Replicas:
    """torch's DistributedDataParallel."""

    def __init__(self, plan: Plan) -> None:
        self.load_on = self.device = plan.device

    def join(self) -> None:
        fresh_state(cpu=self.device == "cpu", **backend_of(self.device))

    def arguments(self, model: torch.nn.Module) -> Mapping[str, Any]:
        # Looking for parameters without gradient costs a walk through the graph in every step. Text alone never reaches
        # the part of a model that sees images.
        idle = any(hasattr(getattr(model, "config", None), name) for name in ("vision_config", "audio_config"))
        return {**CONFIGURED, "ddp_find_unused_parameters": idle}

    def in_force(self, model: torch.nn.Module) -> tuple[str, str]:
        if not isinstance(model, DistributedDataParallel):
            return "none", f"the model is a bare `{type(model).__name__}`"
        size = torch.distributed.get_world_size(model.process_group)
        return "ddp", f"`{type(model).__name__}` averages gradients over {size} processes"
