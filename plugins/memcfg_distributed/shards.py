"""`fsdp2`: weights, gradients and optimizer states are shards of torch's DTensors, gathered layer by layer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType, fsdp_utils
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState
from torch.distributed.tensor import DTensor

from memcfg import Plan
from memcfg.simulated import Together
from memcfg_distributed.replicas import CONFIGURED, backend_of, fresh_state


class Shards:
    """torch's `fully_shard`, through Accelerate."""

    def __init__(self, plan: Plan) -> None:
        self.device = plan.device
        self.load_on = loaded_on(plan)

    def join(self) -> None:
        # torch warns of results that somebody might write into; nothing here writes into what a module returned
        warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
        fresh_state(cpu=self.device == "cpu", **backend_of(self.device))
        if self.device == "cpu":
            # For processes on CPUs Accelerate leaves the sharding out without a word and makes replicas. It shards for
            # what it takes for GPUs, and torch does not mind.
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU

    def arguments(self, model: torch.nn.Module) -> Mapping[str, Any]:
        if not hasattr(FSDPState, "_force_complete_incomplete_states"):
            model.register_forward_hook(_through)
        config: dict[str, Any] = {
            "version": 2, "reshard_after_forward": True, "state_dict_type": "FULL_STATE_DICT",
            "cpu_ram_efficient_loading": False, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        }  # fmt: skip
        if layers := layer_names(model):
            config["transformer_layer_cls_to_wrap"] = layers
        return {**CONFIGURED, "fsdp": True, "fsdp_config": config}

    def in_force(self, model: torch.nn.Module) -> tuple[str, str]:
        units = [module for module in model.modules() if isinstance(module, FSDPModule)]
        for unit in units:
            unit.reshard()  # the last ones stay gathered after a forward, to be ready for the backward
        parameters = list(model.parameters())
        sharded = [p for p in parameters if isinstance(p, DTensor)]
        seen = f"{len(sharded)} of {len(parameters)} parameters are DTensors, in {len(units)} units"
        trainable = all(isinstance(p, DTensor) for p in parameters if p.requires_grad)
        return ("fsdp2" if sharded and trainable and len(units) > 1 else "none"), seen


def _through(model: torch.nn.Module, *_: Any) -> None:
    """After the model's forward, no group of modules waits for one that did not run: losses read the weights of the output layer
    without calling it. Before 2.13 torch takes the next forward for the rest of this one, and gathers nothing."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module._get_fsdp_state()._modules_to_run_forward.clear()


def loaded_on(plan: Plan) -> str:
    """Where a model that is to be sharded is built: in host memory, as it may be too large for one device; on the device
    where its weights are packed there, or where it is used or copied before it is sharded."""
    early = plan.get("reference.mode") in ("precompute", "live") or plan.get("quantization.mode", "none") != "none"
    return plan.device if early else "cpu"


def units_of(model: torch.nn.Module) -> list[Together]:
    """What Accelerate has gathered together: each layer; the input embeddings; and, where they are found, the last norm with
    the output layer (and the embeddings that it shares), which stay. Accelerate before 1.15 leaves all but the layers together."""
    names = layer_names(model)
    found = [Together((module,)) for module in model.modules() if type(module).__name__ in names]
    last_norm: Any = getattr(fsdp_utils, "_find_final_norm", None)
    if last_norm is None:
        return found
    embed, head = (getattr(model, f"get_{end}_embeddings", lambda: None)() for end in ("input", "output"))
    weights = [getattr(module, "weight", None) for module in (embed, head)]
    tied = weights[0] is not None and weights[0] is weights[1]
    if embed is not None and not tied:
        found.append(Together((embed,)))
    tail = tuple(m for m in (last_norm(model), embed if tied else None, head) if m is not None)
    return [*found, Together(tail, kept=True)] if tail else found


def layer_names(model: torch.nn.Module) -> list[str]:
    """The classes of the model's repeated layers, which Transformers calls not to be split."""
    names = getattr(model, "_no_split_modules", None) or ()
    present = {type(module).__name__ for module in model.modules()}
    return sorted(name for name in names if name in present)
