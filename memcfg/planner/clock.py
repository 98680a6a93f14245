"""How long a step takes: each kernel as long as its operations and its bytes need, one after the other, and none begins before
the host has launched it. The host runs ahead until it has launched `QUEUE` kernels or asks for something that the device has not
computed yet. Made to rank plans, not to be read as a promise."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils.flop_counter import flop_registry

from memcfg.planner.hidden import SUMS
from memcfg.planner.machine import Machine
from memcfg.planner.values import tensors

if TYPE_CHECKING:
    from memcfg.planner.repeats import Round

Advance = tuple[float, ...]
"""How the clock went on, in seconds: a kernel's and the host's, the host's alone, or (empty) the host waited for the device."""

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


QUEUE: Final = 1024
"""Kernels that may wait on a stream: the host waits before it launches a further one."""

INDEXED: Final = frozenset(("aten::index", "aten::index_put", "aten::index_put_"))
"""Operations that count on the host how many elements a mask has, where they are given one."""

HALF_RATE: Final = 1000
"""Rows of a document at which flash attention reaches half of the rate that it has on long ones."""

LISTS: Final = 0.7
"""Share of the bandwidth that operations on lists of tensors reach (optimizers, norms of all gradients)."""

PRODUCT: Final = 3e-6
"""What a product of matrices takes beyond its work and beyond what any kernel does."""

EACH_POSITION: Final = 100
"""What the memory-efficient kernel does for each position whatever the head's width (softmax, mask), as so many of its columns;
its rates are those at 128."""

WIDE_HEAD: Final = 128
"""Width of a head beyond which the memory-efficient kernel no longer keeps its sums in registers."""

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
        self._asks: dict[Any, bool] = {}
        self._ends: deque[float] = deque(maxlen=QUEUE)
        self.heard: Round | None = None
        """What is told how the clock goes on, and by the tracker what is born and dies, while something repeats."""

    @property
    def ms(self) -> float:
        return 1e3 * max(self.host, self.device)

    def run(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, key: Any = None, *,
        native: bool = False, hooked: bool = False,
    ) -> None:  # fmt: skip
        """Advance by one operation. Operations of equal `key` take equally long; `native` ones are called from C++ or from a
        plain loop, not from the modules of a model; what `hooked` ones save for the backward pass goes through Python."""
        machine = self.machine
        if func._schema.name in VIEWS:
            self.go_on(((machine.native_view if native else machine.view) + self.modes * machine.mode,))
            return
        seconds = self._known.get(key) if key is not None else None
        if seconds is None:
            seconds = self._seconds(func, args, kwargs, out) + machine.shortest
            if key is not None:
                self._known[key] = seconds
        host = machine.native if native else machine.launch
        self._launch(seconds, host + machine.hook if hooked else host)
        if self._asked(func, args):
            self.go_on(())

    def go_on(self, by: Advance) -> None:
        """Advance by what an operation took."""
        if len(by) == 2:
            self._launch(*by)
            return
        if self.heard is not None:
            self.heard.told.append(by)
        self.host = self.host + by[0] if by else max(self.host, self.device)

    def kernel(self, size: int) -> None:
        """A kernel that no operator shows, which reads and writes so many bytes."""
        self._launch(size / self.machine.bandwidth + self.machine.shortest, self.machine.launch)

    def _launch(self, seconds: float, host: float) -> None:
        """A kernel that takes so long, after so much time of the host."""
        if self.heard is not None:
            self.heard.told.append((seconds, host))
        self.busy += seconds
        self.host += host + self.modes * self.machine.mode
        ends = self._ends
        if len(ends) == QUEUE and ends[0] > self.host:
            self.host = ends[0]
        self.device = max(self.device, self.host) + seconds
        ends.append(self.device)

    def _asked(self, func: Any, args: Sequence[Any]) -> bool:
        """Whether the host goes on only with what the operation found: a number, or how many there are."""
        found = self._asks.get(func)
        if found is None:
            number, shape = torch.Tag.data_dependent_output in func.tags, torch.Tag.dynamic_output_shape in func.tags
            found = self._asks[func] = number or (shape and func._schema.name not in INDEXED)
        return found or (func._schema.name in INDEXED and any(t.dtype == torch.bool for t in tensors(args[1:2])))

    def copy(self, size: int) -> None:
        """A copy to or from the host that the computation waits for."""
        self.unlike()
        self.host += self.machine.launch
        self.device = max(self.device, self.host) + size / self.machine.host_copy

    def work(self, size: int) -> None:
        """The host's processors go over so many bytes of their own memory; nothing is launched meanwhile."""
        self.unlike()
        self.host = max(self.host, self.device) + size / self.machine.host_memory

    def copy_beside(self, size: int) -> float:
        """A copy to or from the host on a stream of its own, begun after what the computation has been given so far.
        Returns when it will be through."""
        self.unlike()
        self.host += self.machine.launch
        self.beside = max(self.beside, self.device, self.host) + size / self.machine.host_copy
        return self.beside

    def wait(self, until: float) -> None:
        """The computation goes on only then."""
        self.unlike()
        self.device = max(self.device, until)

    def now(self) -> float:
        """When all that was launched so far will be through."""
        return max(self.host, self.device)

    def later(self, seconds: float) -> None:
        """Host and device are so much further on, as after work like the last that was not simulated."""
        self.unlike()
        self.host, self.device = self.host + seconds, self.device + seconds

    def unlike(self) -> None:
        """What happens now is not told again."""
        if self.heard is not None:
            self.heard.odd = True

    def _seconds(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
        name, machine = func._schema.name, self.machine
        if "attention" in name or name.startswith("torch_attn"):
            flops, backward = _attention_flops(name, args, self.documents)
            self.flops += flops
            return flops / _attention_rate(name, backward, args, machine)
        moved = _bytes(args) + (_bytes(out) if func._schema.returns else _written(func, args))
        if name == "aten::embedding":
            moved = 2 * _bytes(out)
        if func._overloadpacket not in flop_registry:
            return _moving(name, args, out, moved, machine)
        flops = flop_registry[func._overloadpacket](*args[: _FACTORS.get(name, len(args))], out_val=out)
        self.flops += flops
        single = all(t.dtype == torch.float32 for t in tensors(args))  # a sum may be float32, its factors are not
        rate = machine.matmul_float32 if single else machine.matmul
        return max(flops / rate, moved / machine.bandwidth) + PRODUCT


def _attention_rate(name: str, backward: bool, args: Sequence[Any], machine: Machine) -> float:
    """Operations a second of a kernel."""
    if "efficient" in name:
        rate = machine.efficient_backward if backward else machine.efficient_forward
        width = args[1].shape[-1]
        if width > WIDE_HEAD:
            return rate * (machine.efficient_wide if backward else (1 + machine.efficient_wide) / 2)
        return rate * (1 + EACH_POSITION / WIDE_HEAD) / (1 + EACH_POSITION / width)
    return machine.attention_backward if backward else machine.attention_forward


def _moving(name: str, args: Sequence[Any], out: Any, moved: int, machine: Machine) -> float:
    """Seconds of an operation that computes next to nothing: as many as its bytes need, unless it computes an address, or another
    type, for each of its elements."""
    single = [t for t in (*(a for a in args if isinstance(a, torch.Tensor)), *tensors(out)) if t.numel() > 1]
    if any(isinstance(a, (list, tuple)) and len(a) and isinstance(a[0], torch.Tensor) for a in args) and not single:
        return moved / (LISTS * machine.bandwidth)
    least = moved / machine.bandwidth
    if not single or (name not in SUMS and _even(single)):
        return least
    return max(least, max(t.numel() for t in single) / machine.elements)


def _even(given: Sequence[torch.Tensor]) -> bool:
    """Whether each element of a result comes from those at its own place, of its own type: the kernel then reads and writes whole
    vectors."""
    first = given[0]
    return all(
        t.dtype == first.dtype and t.shape == first.shape and t.stride() == first.stride() for t in given
    ) and _full(first)


def _full(tensor: torch.Tensor) -> bool:
    """Whether a tensor fills its range of memory, in whatever order."""
    wanted = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != wanted:
                return False
            wanted *= size
    return True


def _written(func: Any, args: Sequence[Any]) -> int:
    """Bytes of the arguments that an operation without results writes to."""
    written = zip(func._schema.arguments, args, strict=False)
    return sum(_bytes([arg]) for told, arg in written if told.alias_info is not None and told.alias_info.is_write)


def _bytes(thing: Any) -> int:
    """Bytes that are read or written; what a tensor repeats by a stride of zero is read once."""
    return sum(min(t.numel() * t.element_size(), t.untyped_storage().nbytes()) for t in tensors(thing))


def _attention_flops(name: str, args: Sequence[Any], documents: Sequence[int]) -> tuple[float, bool]:
    """Operations of an attention kernel, causal where it is; whether it is the backward. Flash attention's are more by what it
    could have done meanwhile on long rows."""
    backward = "backward" in name
    query, key = (args[1], args[2]) if backward else (args[0], args[1])
    if query.dim() == 3:
        tokens, heads, width = query.shape
        lengths = documents or [tokens]
        each = sum(2.0 * heads * width * n * (n + HALF_RATE) for n in lengths)
        flops = each * max(1.0, tokens / max(1, sum(lengths)))
    else:
        batch, heads, rows, width = query.shape
        flops = 4.0 * batch * heads * rows * key.shape[-2] * width
        at = MASK_AT.get(next((k for k in MASK_AT if k in name), ""), 0) if backward else 3
        masked = at and any(isinstance(a, torch.Tensor) for a in args[at : at + 1])
        flops *= 1.0 if masked or rows != key.shape[-2] else 0.5
        flops *= 1.0 if "efficient" in name else 1 + HALF_RATE / key.shape[-2]
    return flops * (2.5 if backward else 1.0), backward
