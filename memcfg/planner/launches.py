"""What the host spends on launching the operations of an eager model: measured on one so small that nothing else takes time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memcfg.planner.clock import VIEWS
from memcfg.planner.machine import Machine

ROUNDS: Final = 9
TOKENS: Final = 32
LAYERS: Final = 8


@dataclass
class Counted:
    """Operations by what they cost the host: those that launch a kernel, and views."""

    kernels: int = 0
    views: int = 0

    def each(self, seconds: float, view: float) -> float:
        """Seconds of one that launches, where a view costs `view` of it."""
        return seconds / max(1.0, self.kernels + view * self.views)


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found = Counted()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in VIEWS:
            self.found.views += 1
        else:
            self.found.kernels += 1
        return func(*args, **(kwargs or {}))


def measured(machine: Machine, device: str = "cuda") -> Machine:
    """`machine` with this host's seconds for each operation. What a view costs beside one that launches, and what a mode in
    Python does, is taken to be as it was."""
    model = _model(device)
    forward, backward = _counts(model)
    plain, back = _times(model, device)
    with torch.autograd.graph.saved_tensors_hooks(_same, _same):
        hooked, _ = _times(model, device)
    launch = forward.each(plain, machine.view / machine.launch)
    native = backward.each(back, machine.native_view / machine.native)
    return replace(
        machine, launch=launch, view=launch * machine.view / machine.launch, native=native,
        native_view=native * machine.native_view / machine.native, hook=max(0.0, hooked - plain) / forward.kernels,
        mode=machine.mode * launch / machine.launch,
    )  # fmt: skip


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _model(device: str) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=TOKENS,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(shape)
    return model.to(device=device, dtype=torch.bfloat16).train()


def _loss(model: Any) -> torch.Tensor:
    ids = torch.zeros(1, TOKENS, dtype=torch.long, device=next(model.parameters()).device)
    return model(input_ids=ids, use_cache=False).logits.sum()  # type: ignore[no-any-return]


def _counts(model: Any) -> tuple[Counted, Counted]:
    """Operations of a forward and of a backward pass."""
    _loss(model).backward()  # type: ignore[no-untyped-call]
    with _Counting() as forward:
        loss = _loss(model)
    with _Counting() as backward:
        loss.backward()  # type: ignore[no-untyped-call]
    return forward.found, backward.found


def _times(model: Any, device: str) -> tuple[float, float]:
    """The host's seconds for a forward and a backward pass, the median of several."""
    wait: Callable[[], Any] = torch.cuda.synchronize if device == "cuda" else lambda: None
    found = []
    for _ in range(ROUNDS):
        wait()
        began = time.perf_counter()
        loss = _loss(model)
        between = time.perf_counter()
        wait()
        again = time.perf_counter()
        loss.backward()  # type: ignore[no-untyped-call]
        found.append((between - began, time.perf_counter() - again))
    return statistics.median(one for one, _ in found), statistics.median(other for _, other in found)
