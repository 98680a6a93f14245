"""Values of small integer tensors on a device without storage.

A training step looks into tensors now and then: where labels are, whether positions restart, how long documents are. On
`meta` there is nothing to look at. Inputs come from real tensors, though, so for integers each operation is done a second
time on real memory as long as everything it reads is known. What is known hangs on storages, so that views and writes in
place need no care. Anything else that is looked at gets a plausible answer: yes, one, all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

Tensor = torch.Tensor
aten = torch.ops.aten

LARGEST: Final = 1 << 22
"""Elements. Larger tensors (masks of long rows) are not computed twice."""
LARGEST_FLOAT: Final = 64

SCALAR: Final = aten._local_scalar_dense.default
EQUAL: Final = aten.equal.default
NONZERO: Final = aten.nonzero.default


class Values:
    """`known` maps a storage's address to the real storage with its contents."""

    def __init__(self) -> None:
        self.known: dict[int, torch.UntypedStorage] = {}

    def forget(self, key: int) -> None:
        self.known.pop(key, None)

    def of(self, tensor: Tensor) -> Tensor | None:
        """The real tensor that `tensor` stands for; itself if it is real."""
        if not tensor.is_meta:
            return tensor
        storage = self.known.get(tensor.untyped_storage()._cdata)
        if storage is None:
            return None
        real = torch.empty(0, dtype=tensor.dtype)
        return real.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())

    def concerns(self, args: Sequence[Any]) -> bool:
        """Whether an operation may be about known values: its first argument is known, or is no tensor at all."""
        first = args[0] if args else None
        if isinstance(first, (list, tuple)) and first:
            first = first[0]
        if not isinstance(first, Tensor):
            return True
        return not first.is_meta or first.untyped_storage()._cdata in self.known

    def answer(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operation that reads values, or None if this is no such operation."""
        if func is SCALAR and args[0].is_meta:
            real = self.of(args[0])
            return _plausible(args[0].dtype) if real is None else real.item()
        if func is EQUAL and args[0].is_meta:
            left, right = self.of(args[0]), self.of(args[1])
            return True if left is None or right is None else bool(torch.equal(left, right))
        if func is NONZERO and args[0].is_meta:
            return self._nonzero(args[0])
        return None

    def _nonzero(self, tensor: Tensor) -> Tensor:
        real = self.of(tensor)
        if real is None:
            return torch.empty_strided(
                (tensor.numel(), tensor.dim()), (1, max(1, tensor.numel())), dtype=torch.long, device="meta"
            )
        found = real.nonzero()
        result = torch.empty_strided(found.shape, found.stride(), dtype=torch.long, device="meta")
        if found.numel():
            self.known[result.untyped_storage()._cdata] = found.untyped_storage()
        return result

    def follow(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        """Do to the known values what was done to the tensors, or forget those that were overwritten by unknown ones."""
        if "rand" in func._schema.name:
            return  # nobody looks where chance decides
        if func._schema.name == "aten::set_":
            return  # a tensor is laid over another storage: what is known hangs on storages
        written = [args[i] for i in _written(func) if i < len(args)]
        results = [t for t in tensors(out) if t.is_meta and not any(t is w for w in written)]
        fresh = [t for t in results if t.untyped_storage()._cdata not in self.known and _worth(t)]
        if not written and not fresh:
            return
        real = self._real(args), self._real(tuple(kwargs.values()))
        if real[0] is None or real[1] is None:
            for tensor in tensors(written):
                self.forget(tensor.untyped_storage()._cdata)
            return
        again = dict(zip(kwargs, real[1], strict=True))
        if "device" in again and again["device"] is not None:
            again["device"] = torch.device("cpu")
        self._learn(list(tensors(out)), list(tensors(func(*real[0], **again))))

    def _learn(self, results: list[Tensor], computed: list[Tensor]) -> None:
        for tensor, found in zip(results, computed, strict=False):
            key = tensor.untyped_storage()._cdata
            same = found.stride() == tensor.stride() and found.storage_offset() == tensor.storage_offset()
            if tensor.is_meta and key not in self.known and same and _worth(tensor):
                self.known[key] = found.untyped_storage()

    def _real(self, args: Sequence[Any]) -> list[Any] | None:
        """The arguments with every tensor replaced by its values; None if one is not known."""
        found: list[Any] = []
        for arg in args:
            if isinstance(arg, Tensor):
                real: Any = self.of(arg)
            elif isinstance(arg, (list, tuple)) and any(isinstance(a, Tensor) for a in arg):
                real = self._real(arg)
            else:
                found.append(arg)
                continue
            if real is None:
                return None
            found.append(real)
        return found


def tensors(thing: Any) -> Iterator[Tensor]:
    """The tensors in a result or an argument, lists of them included."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for item in thing:
            yield from tensors(item)


def _worth(tensor: Tensor) -> bool:
    """Whether a new tensor may be looked into later. An empty storage has no grave to say when it dies."""
    if not tensor.untyped_storage().nbytes():
        return False
    floating = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    return tensor.numel() <= (LARGEST_FLOAT if floating else LARGEST)


_WRITTEN: dict[Any, tuple[int, ...]] = {}


def _written(func: Any) -> tuple[int, ...]:
    """Positions of the arguments that an operator writes to."""
    if func not in _WRITTEN:
        arguments = func._schema.arguments
        _WRITTEN[func] = tuple(i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write)
    return _WRITTEN[func]


def _plausible(dtype: torch.dtype) -> Any:
    return True if dtype == torch.bool else 1.0 if dtype.is_floating_point else 1


Answer = Callable[..., Any]
