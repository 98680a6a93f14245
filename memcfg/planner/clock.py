"""How long a step takes, by roofline: each kernel takes as long as its operations or its bytes need, whichever is more,
and none begins before the host has launched it. Made to rank plans, not to be read as a promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.utils.flop_counter import flop_registry

from memcfg.planner.machine import Machine
from memcfg.planner.values import tensors

VIEWS: Final = frozenset(
    f"aten::{name}"
    for name in (
        "view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "detach", "alias",
        "_unsafe_view", "as_strided", "unbind", "split", "split_with_sizes", "_reshape_alias", "lift_fresh", "diagonal",
        "unfold", "view_as", "movedim", "swapaxes", "empty", "empty_strided", "empty_like", "new_empty",
    )
)  # fmt: skip


_FACTORS: Final = {"aten::mm": 2, "aten::addmm": 3, "aten::bmm": 2, "aten::baddbmm": 3}
"""Arguments that count for the operations of a product; a type or a place for the result may follow."""


MASK_AT: Final = {"efficient": 4, "cudnn": 8}
"""Where the backward of an attention kernel is given a mask."""


class Clock:
    """`host` and `device` are seconds since the beginning; the device waits for the host, never the other way round."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.host = self.device = self.busy = 0.0
        self.beside = 0.0
        """When the stream beside the computation's is through with its copies."""
        self.flops = 0.0
        self.modes = 0
        """Dispatch modes in Python that a technique has put around the computation."""
        self.documents: Sequence[int] = ()
        """Lengths of the documents of the current micro-batch, for attention over cumulative lengths."""
        self._known: dict[Any, float] = {}

    @property
    def ms(self) -> float:
        return 1e3 * max(self.host, self.device)

    def run(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, key: Any = None, *, native: bool = False
    ) -> None:
        """Advance by one operation. Operations of equal `key` take equally long; `native` ones are called from C++ or from a
        plain loop, not from the modules of a model."""
        machine = self.machine
        if func._schema.name in VIEWS:
            self.host += (machine.native_view if native else machine.view) + self.modes * machine.mode
            return
        seconds = self._known.get(key) if key is not None else None
        if seconds is None:
            seconds = self._seconds(func, args, kwargs, out) + machine.shortest
            if key is not None:
                self._known[key] = seconds
        self.busy += seconds
        self.host += (machine.native if native else machine.launch) + self.modes * machine.mode
        self.device = max(self.device, self.host) + seconds

    def copy(self, size: int) -> None:
        """A copy to or from the host that the computation waits for."""
        self.host += self.machine.launch
        self.device = max(self.device, self.host) + size / self.machine.host_copy

    def work(self, size: int) -> None:
        """The host's processors go over so many bytes of their own memory; nothing is launched meanwhile."""
        self.host = max(self.host, self.device) + size / self.machine.host_memory

    def copy_beside(self, size: int) -> float:
        """A copy to or from the host on a stream of its own, begun after what the computation has been given so far.
        Returns when it will be through."""
        self.host += self.machine.launch
        self.beside = max(self.beside, self.device, self.host) + size / self.machine.host_copy
        return self.beside

    def wait(self, until: float) -> None:
        """The computation goes on only then."""
        self.device = max(self.device, until)

    def now(self) -> float:
        """When all that was launched so far will be through."""
        return max(self.host, self.device)

    def later(self, seconds: float) -> None:
        """Host and device are so much further on, as after work like the last that was not simulated."""
        self.host, self.device = self.host + seconds, self.device + seconds

    def through(self, until: float) -> bool:
        """Whether the host, which is ahead of the device, finds a copy finished."""
        return until <= self.host

    def _seconds(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
        name, machine = func._schema.name, self.machine
        if "attention" in name or name.startswith("torch_attn"):
            flops, backward = _attention_flops(name, args, self.documents)
            self.flops += flops
            return flops / _attention_rate(name, backward, machine)
        moved = _bytes(args) + _bytes(out)
        if name == "aten::embedding":
            moved = 2 * _bytes(out)
        if func._overloadpacket not in flop_registry:
            return moved / machine.bandwidth
        flops = flop_registry[func._overloadpacket](*args[: _FACTORS.get(name, len(args))], out_val=out)
        self.flops += flops
        single = all(t.dtype == torch.float32 for t in tensors(args))  # a sum may be float32, its factors are not
        rate = machine.matmul_float32 if single else machine.matmul
        return max(flops / rate, moved / machine.bandwidth)


def _attention_rate(name: str, backward: bool, machine: Machine) -> float:
    """Operations a second of a kernel."""
    if "efficient" in name:
        return machine.efficient_backward if backward else machine.efficient_forward
    return machine.attention_backward if backward else machine.attention_forward


def _bytes(thing: Any) -> int:
    """Bytes that are read or written; what a tensor repeats by a stride of zero is read once."""
    return sum(min(t.numel() * t.element_size(), t.untyped_storage().nbytes()) for t in tensors(thing))


def _attention_flops(name: str, args: Sequence[Any], documents: Sequence[int]) -> tuple[float, bool]:
    """Operations of an attention kernel, causal where it is; whether it is the backward."""
    backward = "backward" in name
    query, key = (args[1], args[2]) if backward else (args[0], args[1])
    if query.dim() == 3:
        tokens, heads, width = query.shape
        lengths = documents or [tokens]
        flops = sum(2.0 * heads * width * n * n for n in lengths) * max(1.0, tokens / max(1, sum(lengths)))
    else:
        batch, heads, rows, width = query.shape
        flops = 4.0 * batch * heads * rows * key.shape[-2] * width
        at = MASK_AT.get(next((k for k in MASK_AT if k in name), ""), 0) if backward else 3
        masked = at and any(isinstance(a, torch.Tensor) for a in args[at : at + 1])
        flops /= 1 if masked else 2
    return flops * (2.5 if backward else 1.0), backward
