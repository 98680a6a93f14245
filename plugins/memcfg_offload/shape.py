"""What has to be moved of a saved tensor, and how the tensor is made again from it.

A tensor is a view of a storage. Where the storage holds little else, all of it is moved, and every view of it shares one
copy: a matrix and its transpose, the halves of a projection. Where the view is a small part of its storage, that part is
moved by itself. What a broadcast repeats is moved once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef

WASTE = 1.5
"""How much larger than the view its storage may be to be moved whole."""


@dataclass(frozen=True)
class View:
    """How to lay a tensor over moved bytes: `size` and `stride` in elements, `offset` in elements from their start."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def over(self, data: torch.Tensor) -> torch.Tensor:
        """The tensor whose bytes are those of `data` (uint8, 1-D)."""
        made = torch.empty(0, dtype=self.dtype, device=data.device)
        return made.set_(data.untyped_storage(), self.offset, self.size, self.stride)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class Part:
    """What is moved: `data` (uint8, 1-D) on the device, and the view that the tensor is of it. `key` is equal for tensors
    whose bytes are the same ones; it is valid while `owner` is kept."""

    data: torch.Tensor
    view: View
    key: Hashable
    owner: StorageWeakRef


def part_of(tensor: torch.Tensor) -> Part:
    """What to move of a strided tensor."""
    storage = tensor.untyped_storage()
    owner = StorageWeakRef(storage)
    # While a weak reference is kept the address of a storage's record is not used again, unlike that of its memory.
    identity = (owner.cdata, tensor._version)
    whole = View(tensor.dtype, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
    once = tensor[tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride())]
    if storage.nbytes() <= WASTE * once.numel() * once.element_size():
        return Part(bytes_of(storage, tensor.device), whole, identity, owner)
    packed = once.contiguous() if once.is_contiguous() is False else once.clone()
    strides = tuple(0 if step == 0 else new for step, new in zip(tensor.stride(), packed.stride(), strict=True))
    part = View(tensor.dtype, tuple(tensor.shape), strides, 0)
    return Part(bytes_of(packed.untyped_storage(), tensor.device), part, (*identity, whole), owner)


def bytes_of(storage: torch.UntypedStorage, device: torch.device) -> torch.Tensor:
    """A storage as a tensor of bytes."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)  # type: ignore[call-overload, no-any-return]
