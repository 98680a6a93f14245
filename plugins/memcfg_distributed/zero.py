"""`zero2` and `zero3`: DeepSpeed shards gradients and optimizer states, under stage 3 the weights too."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from memcfg import Plan
from memcfg.engine.forward import causal_model
from memcfg_distributed.replicas import CONFIGURED, backend_of, fresh_state
from memcfg_distributed.shards import loaded_on

PERSISTENT = 100_000
"""Parameters of fewer numbers are not sharded under stage 3 (DeepSpeed's own default)."""

STAGES = {"zero2": 2, "zero3": 3}


class Zero:
    """DeepSpeed's engine, through Accelerate and its own configuration."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.device = plan, plan.device
        self.stage = STAGES[plan["distributed.strategy"]]
        self.load_on = loaded_on(plan) if self.stage == 3 else plan.device

    def join(self) -> None:
        # DeepSpeed calls two functions of torch by their older names, at every step
        warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
        if self.device == "cpu":
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
            _no_compiler()
        try:
            fresh_state(cpu=False, deepspeed=True, **backend_of(self.device))
        finally:
            os.environ.pop("ACCELERATE_USE_DEEPSPEED", None)

    def arguments(self, model: torch.nn.Module) -> Mapping[str, Any]:
        if self.stage == 3:
            _announce_head(model)
        half = self.plan.get("model.dtype") == "bfloat16"
        return {**CONFIGURED, "deepspeed": self.config(), "bf16": half}

    def config(self) -> dict[str, Any]:
        """DeepSpeed's configuration. Its accumulation is fixed at one: the engine says when a step is complete."""
        plan = self.plan
        zero: dict[str, Any] = {"stage": self.stage}
        if self.stage == 3:
            zero["stage3_gather_16bit_weights_on_model_save"] = True
            zero["stage3_param_persistence_threshold"] = PERSISTENT
        return {
            "train_micro_batch_size_per_gpu": plan["run.batch_size"],
            "gradient_accumulation_steps": 1,
            "gradient_clipping": plan.get("run.max_grad_norm") or 0.0,
            "zero_optimization": zero,
            "bf16": {"enabled": "auto"},
            "zero_allow_untested_optimizer": True,  # the optimizer is the plan's, not one of DeepSpeed's own
            "zero_force_ds_cpu_optimizer": False,
            "steps_per_print": 2**31 - 1,
        }  # fmt: skip

    def in_force(self, model: torch.nn.Module) -> tuple[str, str]:
        stage = getattr(model, "zero_optimization_stage", None)
        if stage is None:
            return "none", f"the model is a bare `{type(model).__name__}`"
        parameters = list(model.parameters())
        shards = sum(getattr(p, "ds_tensor", None) is not None for p in parameters)
        seen = f"a `{type(model).__name__}` of stage {stage()}, {shards} of {len(parameters)} parameters in shards"
        return f"zero{stage()}", seen


def _announce_head(model: torch.nn.Module) -> None:
    """Tell DeepSpeed, before the first forward, that the whole model's forward reads the output layer's weights: losses do
    so without calling the layer. Where it finds that out by itself, in the middle of a forward, the order in which it
    gathers weights is another the next time, and it gives up."""
    inner = causal_model(model)

    def announce(module: torch.nn.Module, _: Any) -> None:
        from deepspeed.runtime.zero.partition_parameters import is_zero_param
        from deepspeed.runtime.zero.partition_parameters import register_external_parameter as announced

        handle.remove()
        for parameter in module.get_output_embeddings().parameters():  # type: ignore[operator]
            if is_zero_param(parameter):
                announced(module, parameter)

    handle = inner.register_forward_pre_hook(announce)


def _no_compiler() -> None:
    """Keep DeepSpeed from compiling its own all-reduce for processes of one host, which takes a minute and a compiler and
    gains nothing where training is not fast anyway. gloo does the work."""
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
