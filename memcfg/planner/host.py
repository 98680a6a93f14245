"""Large tensors in host memory during a simulation: counted, never filled.

What a technique keeps on the host is real for torch (its device is the CPU), but nothing may be computed with it: the
weights of eight billion parameters would take minutes, and there is nothing to copy from a device without storage. So large
host tensors are made without being touched, which costs the system nothing, and work on them is left out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from memcfg.planner.values import tensors

Tensor = torch.Tensor
aten = torch.ops.aten

LARGE: Final = 1 << 16
"""Elements of a floating tensor from which on it is not computed with."""

COPIES: Final = (aten.copy_.default, aten._to_copy.default)

UNFILLED: Final = ("aten::empty", "aten::zeros", "aten::ones", "aten::rand", "aten::randn")
"""Operations that make a tensor of which only the size is known."""

NOTHING: Final = object()
"""What `Host.answer` returns for an operation that is not its business."""


class Host:
    """`bytes` of large host tensors that are alive, and the most so far. `copied` is told the bytes of each copy, `worked`
    those that the host itself reads and writes; `known` gives the values of a tensor on the device, where they are known."""

    def __init__(
        self, copied: Callable[[int], None], worked: Callable[[int], None], known: Callable[[Tensor], Tensor | None]
    ) -> None:
        self.bytes = self.peak = 0
        self._copied, self._worked, self._known = copied, worked, known
        self._alive: set[int] = set()

    def answer(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operation on the host or between host and device, or `NOTHING`."""
        if func not in COPIES and args and isinstance(args[0], Tensor) and args[0].is_meta:
            return NOTHING
        given = list(tensors(args))
        if func is aten.copy_.default and given[0].device.type != given[1].device.type:
            self._copied(given[0].numel() * given[0].element_size())
            return given[0] if given[0].device.type == "cpu" else NOTHING
        if func is aten._to_copy.default and kwargs.get("device") == torch.device("cpu") and given[0].is_meta:
            real, dtype = self._known(given[0]), kwargs.get("dtype") or given[0].dtype
            made = torch.empty(given[0].shape, dtype=dtype) if real is None else real.clone().to(dtype)
            self._copied(made.numel() * made.element_size())
            return self.see(made)
        if any(t.is_meta for t in given) or torch.device(kwargs.get("device") or "cpu").type != "cpu":
            return NOTHING  # it is made on the device
        return self._on_host(func, args, kwargs, given)

    def see(self, tensor: Tensor) -> Tensor:
        """Count a host tensor, if it is large and new."""
        if not _large(tensor):
            return tensor
        storage = tensor.untyped_storage()
        if storage._cdata not in self._alive:
            self._alive.add(storage._cdata)
            self.bytes += storage.nbytes()
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes()).atexit = False
        return tensor

    def _gone(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.bytes -= size

    def _on_host(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], given: list[Tensor]) -> Any:
        """An operation that reads and writes host memory alone."""
        if not given:
            return self._made(func, args, kwargs)
        if not any(_large(t) for t in given):
            return NOTHING
        if _writes(func):
            self._worked(sum(t.numel() * t.element_size() for t in given))
            return args[0] if func._schema.returns else None
        shapes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in given]
        if len(given) == 1 and func._schema.returns and not _aliases(func):
            out = func(shapes[0], *args[1:], **{k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")})
            return self.see(torch.empty_strided(out.shape, out.stride(), dtype=out.dtype))
        return NOTHING

    def _made(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A new host tensor: large ones are not filled."""
        device = kwargs.get("device")
        if func._schema.name not in UNFILLED:
            return NOTHING
        if device is not None and torch.device(device).type != "cpu":
            return NOTHING
        size = args[0] if args and isinstance(args[0], (list, tuple)) else None
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        if size is None or not dtype.is_floating_point or torch.Size(size).numel() < LARGE:
            return NOTHING
        return self.see(torch.empty(size, dtype=dtype))


def _large(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype.is_floating_point and tensor.numel() >= LARGE


def _writes(func: Any) -> bool:
    return any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)


def _aliases(func: Any) -> bool:
    return any(a.alias_info is not None for a in func._schema.arguments)
