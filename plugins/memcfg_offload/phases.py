"""Optimizer states and gradients in host memory while completions are sampled: sampling reads neither.

Copied out when a round begins and back when it ends, after an error too. The host memory is kept and used again. Of what is
spread over processes, each moves its own shards.

On `meta` nothing is copied, and the memory simulator sees the storages go and come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from memcfg import simulated

ASIDE = "_memcfg_laid_aside"
"""Attribute of an optimizer: its `LaidAside`."""


class LaidAside:
    """A context, entered around each round of sampling. `rounds`: how often; `bytes`: how much of the device it freed at most;
    `complete`: whether all that lay on the device was moved, in every round. `more` gives further tensors to move."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, *, pin: bool, more: Callable[[], Iterable[torch.Tensor]] = tuple
    ) -> None:
        self.optimizer, self.pin, self.more = optimizer, pin, more
        self.rounds, self.bytes, self.complete = 0, 0, True
        self._moved: list[tuple[torch.Tensor, torch.device, torch.Tensor]] = []
        self._host: dict[int, torch.Tensor] = {}

    @classmethod
    def of(cls, optimizer: Any, *, pin: bool) -> LaidAside:
        """The one of this optimizer; `optimizer` may be wrapped by Accelerate."""
        inner = getattr(optimizer, "optimizer", optimizer)
        return kept(inner, lambda: cls(inner, pin=pin))

    def __enter__(self) -> None:
        before = list({id(tensor): tensor for tensor in self._tensors()}.values())  # states may share a table
        freed = 0
        try:
            for tensor in before:
                freed += self._out(tensor)
        except BaseException:
            self._back()
            raise
        _settled(release=True)
        left = [t for t in before if t.device.type != "cpu"]
        self.rounds, self.bytes = self.rounds + 1, max(self.bytes, freed)
        self.complete &= not left and len(self._moved) == len(before)

    def __exit__(self, *_: object) -> None:
        self._back()

    def _tensors(self) -> Iterator[torch.Tensor]:
        """Gradients and states, but for counters: a single number frees nothing. Of a distributed tensor this process's shard,
        whose memory can be given away without anybody else noticing."""
        for group in self.optimizer.param_groups:
            yield from (local(parameter.grad) for parameter in group["params"] if parameter.grad is not None)
        for tensor in _within(dict(self.optimizer.state)):
            if tensor.numel() > 1:
                yield local(tensor)
        yield from self.more()

    def _out(self, tensor: torch.Tensor) -> int:
        device, data = tensor.device, tensor.data
        host = self._host.get(id(tensor))
        if host is None or (host.shape, host.dtype) != (data.shape, data.dtype):
            host = self._made(data)
            self._host[id(tensor)] = host
        host.copy_(data, non_blocking=self.pin)
        self._moved.append((tensor, device, host))
        tensor.data = host if not data.is_meta else data.new_empty(0)
        return data.numel() * data.element_size()

    def _made(self, data: torch.Tensor) -> torch.Tensor:
        if data.is_meta:
            return torch.empty(data.shape, dtype=data.dtype)
        return torch.empty_like(data, device="cpu", pin_memory=self.pin)

    def _back(self) -> None:
        """All of it where it was. What was never moved stays."""
        for tensor, device, host in self._moved:
            made = torch.empty_like(host, device=device)
            tensor.data = made.copy_(host, non_blocking=self.pin)
        kept = {id(tensor) for tensor, _, _ in self._moved}
        self._host = {name: host for name, host in self._host.items() if name in kept}
        self._moved = []
        _settled(release=False)


def kept(optimizer: Any, make: Callable[[], Any]) -> Any:
    """What lays this optimizer's states aside: made once, and found on it afterwards."""
    if not hasattr(optimizer, ASIDE):
        setattr(optimizer, ASIDE, make())
    return getattr(optimizer, ASIDE)


@torch.no_grad()
def local(tensor: torch.Tensor) -> torch.Tensor:
    """The very tensor that holds this process's shard; a plain tensor is its own. Without gradients, so no copy."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _within(state: Any) -> Iterator[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _within(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _within(value)


def _settled(*, release: bool) -> None:
    """Copies are through; what they freed may be taken by others than torch."""
    if release:
        simulated.emptied()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        if release:
            torch.cuda.empty_cache()
