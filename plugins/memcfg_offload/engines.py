"""Optimizer states of a DeepSpeed engine in host memory while completions are sampled.

DeepSpeed moves its own buffers (`offload_states`, `reload_states`), which knows what else refers to them. Under stage 3 it does so
for its own Adam alone: states of another optimizer, and the float32 weights that it moves, are laid aside here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch

from memcfg import Problem, RunError
from memcfg_offload.phases import LaidAside, kept


class EngineAside:
    """`LaidAside` for an engine of ZeRO-2 or ZeRO-3: `rounds`, `bytes` and `complete` mean the same."""

    def __init__(self, engine: Any, *, pin: bool) -> None:
        self.engine, self.pin, self.zero = engine, pin, engine.optimizer
        if not hasattr(self.zero, "offload_states"):
            text = "this release of DeepSpeed moves no states of ZeRO-2"
            raise RunError(Problem(text, key="offload.phases", fix="pip install -U deepspeed, or offload.phases=false"))
        self.rounds, self.bytes, self.complete = 0, 0, True
        self.states = LaidAside(self.zero.optimizer, pin=pin, more=self._weights)
        self._entered: ExitStack | None = None

    @classmethod
    def of(cls, engine: Any, *, pin: bool) -> EngineAside:
        """The one of this engine, kept at the plan's own optimizer inside of it."""
        found: EngineAside = kept(engine.optimizer.optimizer, lambda: cls(engine, pin=pin))
        return found

    def __enter__(self) -> None:
        before = self._held()
        with ExitStack() as stack:
            if self.engine.zero_optimization_stage() == 3:
                stack.enter_context(self.states)
            stack.callback(self.engine.reload_states)
            self.engine.offload_states(include=self._own(), pin_memory=self.pin)
            self._entered = stack.pop_all()
        after = self._held()
        self.rounds += 1
        self.bytes = max(self.bytes, sum(before.values()))
        self.complete &= set(after) <= {"cpu"} and sum(after.values()) == sum(before.values())

    def __exit__(self, *_: object) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.close()

    def _own(self) -> list[Any]:
        """What DeepSpeed moves itself. The float32 weights go with the states of stage 2: views of both are kept together."""
        from deepspeed.runtime.zero.offload_config import OffloadStateTypeEnum as Kind

        if self.engine.zero_optimization_stage() == 3:
            return [Kind.lp_grads, Kind.contiguous_grad_buffer]
        return [Kind.hp_params, Kind.lp_grads, Kind.optim_states]

    def _weights(self) -> Iterator[torch.Tensor]:
        """The weights in float32 that stage 3 moves, where they are not those that the model computes with."""
        used = {p.ds_tensor.untyped_storage().data_ptr() for p in self.engine.parameters() if hasattr(p, "ds_tensor")}
        for flat in getattr(self.zero, "fp32_partitioned_groups_flat", ()):
            if flat.untyped_storage().data_ptr() not in used:
                yield flat

    def _held(self) -> dict[str, int]:
        """Bytes of states and of the optimizer's own weights, by the kind of device that they lie on."""
        found: dict[str, int] = {}
        flat = (
            self._weights() if self.engine.zero_optimization_stage() == 3 else self.zero.single_partition_of_fp32_groups
        )
        states = (t for t in LaidAside(self.zero.optimizer, pin=False)._tensors())
        for tensor in {id(t): t for t in (*states, *flat)}.values():
            found[tensor.device.type] = found.get(tensor.device.type, 0) + tensor.numel() * tensor.element_size()
        return found
