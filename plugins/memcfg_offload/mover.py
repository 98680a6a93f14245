"""Moves saved tensors out in the forward pass and brings them back, a little ahead of time, in the backward pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from memcfg import Problem, RunError
from memcfg_offload.host import Span, Stack
from memcfg_offload.shape import Part, View, part_of
from memcfg_offload.transfer import Transfer

IN_FLIGHT: Final = 256 << 20
"""Bytes that may be on their way at once (one tensor always may). More would only keep memory: the copy engine is busy
with one."""

HELD: Final = 32
"""Micro-batches in a row after which what they saved must not be held any more. A garbage collector needs a few."""


@dataclass(eq=False)
class Moved:
    """Bytes on the host that stand for one or several saved tensors. `data` is their copy on the device, while there is
    one; `event` what ends the copy that was begun last."""

    index: int
    size: int
    device: torch.device
    span: Span
    owner: StorageWeakRef
    data: torch.Tensor | None
    event: Any
    packed: int = 0
    unpacked: int = 0
    awaited: bool = True


class Handle:
    """What autograd keeps instead of a tensor."""

    __slots__ = ("__weakref__", "entry", "rebuild", "view")

    def __init__(self, entry: Moved, view: View, rebuild: Any) -> None:
        self.entry, self.view, self.rebuild = entry, view, rebuild


class Mover:
    """`pack` and `unpack` for `torch.autograd.graph.saved_tensors_hooks`.

    `limit` is how many tensors may be in flight. Counts `tensors` and `bytes` moved since it was made. Between
    micro-batches `finish` gives everything back; what a graph that is still alive holds stays valid."""

    def __init__(self, stack: Stack, transfer: Transfer, *, device: str, min_bytes: int, limit: int) -> None:
        self.stack, self.transfer = stack, transfer
        self.device, self.min_bytes, self.limit = device, min_bytes, limit
        self._room = limit if transfer.beside else 1
        self.tensors = self.bytes = 0
        self.kept: frozenset[int] = frozenset()
        self._known: dict[Hashable, Moved] = {}
        self._entries: list[Moved] = []
        self._stash: deque[Moved] = deque()
        self._alive: WeakSet[Handle] = WeakSet()
        self._held = 0

    def keep(self, model: torch.nn.Module) -> None:
        """The storages of the model's parameters and buffers stay where they are, and so do views of them."""
        held = [_local(t) for t in (*model.parameters(), *model.buffers())]
        self.kept = frozenset(t.untyped_storage()._cdata for t in held if t.layout is torch.strided)

    # ------------------------------------------------------------------------------------------------- forward

    def pack(self, tensor: torch.Tensor) -> Any:
        """A handle for a tensor that is moved; the tensor itself for one that stays."""
        inner = _local(tensor)
        if not self._moves(tensor, inner):
            return tensor
        with torch.no_grad():
            part = part_of(inner.detach())
            entry = self._known.get(part.key)
            if entry is None:
                entry = self._known[part.key] = self._send(part)
        entry.packed += 1
        handle = Handle(entry, part.view, _distributed(tensor))
        self._alive.add(handle)
        return handle

    def _moves(self, tensor: torch.Tensor, inner: torch.Tensor) -> bool:
        plain = type(inner) in (torch.Tensor, torch.nn.Parameter) and inner.layout is torch.strided
        if not plain or inner.device.type != self.device or inner.is_conj() or inner.is_neg():
            return False
        size = inner.numel() * inner.element_size()
        if not size or size < self.min_bytes or torch._C._current_graph_task_id() != -1:
            return False  # in the backward pass what is saved is used at once
        if isinstance(tensor, torch.nn.Parameter) or isinstance(tensor._base, torch.nn.Parameter):
            return False
        return inner.untyped_storage()._cdata not in self.kept

    def _send(self, part: Part) -> Moved:
        size = part.data.numel()
        span = self.stack.take(size)
        self._make_room(size)
        event = self.transfer.out(part.data, span)
        entry = Moved(len(self._entries), size, part.data.device, span, part.owner, part.data, event)
        self._entries.append(entry)
        self._stash.append(entry)
        self.tensors, self.bytes = self.tensors + 1, self.bytes + size
        return entry

    def _make_room(self, size: int) -> None:
        """Wait for the oldest copies until `size` more bytes may be in flight. Whether a copy happens to be through is not asked:
        what a step reserves would then depend on the moment."""
        while self._stash and (
            len(self._stash) >= self._room or size + sum(entry.size for entry in self._stash) > IN_FLIGHT
        ):
            self._let_go(self._stash.popleft())

    def _let_go(self, entry: Moved) -> None:
        """The computation goes on only when the copy is through; then the memory is free."""
        if entry.data is not None:
            self.transfer.wait(entry.event)
            entry.data = None

    # ------------------------------------------------------------------------------------------------ backward

    def unpack(self, packed: Any) -> torch.Tensor:
        """The tensor again. What was saved before it, and is therefore needed next, is begun to be copied."""
        if not isinstance(packed, Handle):
            return packed  # type: ignore[no-any-return]
        entry = packed.entry
        with torch.no_grad():
            self._begin(entry)
            if not entry.awaited:
                self.transfer.wait(entry.event)
                entry.awaited = True
            assert entry.data is not None
            tensor = packed.view.over(entry.data)
        entry.unpacked += 1
        if entry.unpacked >= entry.packed:
            self._let_go(entry)
        self._ahead(entry)
        return tensor if packed.rebuild is None else packed.rebuild(tensor)  # type: ignore[no-any-return]

    def _begin(self, entry: Moved) -> None:
        if entry.data is None:
            entry.data, entry.event = self.transfer.back(entry.span, entry.size, entry.device)
            entry.awaited = False

    def _ahead(self, entry: Moved) -> None:
        """Begin what comes next, as far as the stash allows."""
        size = 0
        for other in reversed(self._entries[max(0, entry.index - self.limit) : entry.index]):
            if other.unpacked >= other.packed:
                continue
            if size and size + other.size > IN_FLIGHT:
                return
            size += other.size
            self._begin(other)

    def finish(self) -> None:
        """The end of a micro-batch: nothing is in flight any more, and the room on the host is free again."""
        for entry in self._entries:
            self._let_go(entry)
        self._known.clear()
        self._entries.clear()
        self._stash.clear()
        self._held = self._held + 1 if self._alive else 0
        if not self._held:
            self.stack.reset()
        elif self._held > HELD:
            text = f"what {HELD} micro-batches saved is still held by somebody, and the host would fill up"
            fix = "detach what is kept of a step: a loss or a hidden state holds all that its gradient needs"
            raise RunError(Problem(text, key="offload.activations", fix=fix))


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a distributed tensor; any other tensor itself."""
    return getattr(tensor, "_local_tensor", tensor)


def _distributed(tensor: torch.Tensor) -> Any:
    """How to make a distributed tensor of its local part; None for any other tensor."""
    if not hasattr(tensor, "_local_tensor"):
        return None
    from torch.distributed.tensor import DTensor

    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    shape, stride = tensor.shape, tensor.stride()
    return lambda local: DTensor.from_local(local, mesh, placements, run_check=False, shape=shape, stride=stride)
