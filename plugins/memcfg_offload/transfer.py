"""Copies between device and host: on a stream of their own beside the computation, or one after the other.

A copy in flight holds on to its device memory, and the allocator must not hand that to the computation before the copy is
through. Both are kept by events: device memory is always taken and given back on the computation's stream, which waits for
a copy's event before it lets go of what the copy reads."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from memcfg import simulated
from memcfg_offload.host import Span


class Transfer(Protocol):
    """`out` and `back` begin a copy and return what `wait` needs to make the computation wait for its end. `beside`: whether the
    computation goes on meanwhile."""

    beside: bool

    def out(self, data: torch.Tensor, span: Span) -> Any: ...

    def back(self, span: Span, size: int, device: torch.device) -> tuple[torch.Tensor, Any]: ...

    def wait(self, event: Any) -> None: ...


class Direct:
    """Copies in the computation's own order: on a CPU, or where no second stream is wanted."""

    beside = False

    def out(self, data: torch.Tensor, span: Span) -> None:
        _copy(data, span, non_blocking=False)

    def back(self, span: Span, size: int, device: torch.device) -> tuple[torch.Tensor, None]:
        made = torch.empty(size, dtype=torch.uint8, device=device)
        _fill(made, span, non_blocking=False)
        return made, None

    def wait(self, event: None) -> None:
        return


class Streamed:
    """Copies on a CUDA stream of their own."""

    beside = True

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def out(self, data: torch.Tensor, span: Span) -> torch.cuda.Event:
        self._stream.wait_stream(torch.cuda.current_stream(data.device))
        with torch.cuda.stream(self._stream):
            _copy(data, span, non_blocking=True)
        return self._stream.record_event()  # type: ignore[no-any-return, no-untyped-call]

    def back(self, span: Span, size: int, device: torch.device) -> tuple[torch.Tensor, torch.cuda.Event]:
        made = torch.empty(size, dtype=torch.uint8, device=device)
        self._stream.wait_stream(torch.cuda.current_stream(device))  # what used this memory before is through
        with torch.cuda.stream(self._stream):
            _fill(made, span, non_blocking=True)
        return made, self._stream.record_event()  # type: ignore[no-untyped-call]

    def wait(self, event: torch.cuda.Event) -> None:
        torch.cuda.current_stream().wait_event(event)


class Storageless:
    """Nothing to copy: what is on `meta` has a size only. The memory simulator counts it, and is told of the copies;
    without a second stream the computation waits for each."""

    def __init__(self, streams: bool) -> None:
        self.beside = streams

    def out(self, data: torch.Tensor, span: Span) -> float | None:
        return self._told(data.numel())

    def back(self, span: Span, size: int, device: torch.device) -> tuple[torch.Tensor, float | None]:
        return torch.empty(size, dtype=torch.uint8, device=device), self._told(size)

    def wait(self, event: float | None) -> None:
        simulated.awaited(event)

    def _told(self, size: int) -> float | None:
        until = simulated.copied(size)
        if not self.beside:
            simulated.awaited(until)
        return until


def _copy(data: torch.Tensor, span: Span, *, non_blocking: bool) -> None:
    start = 0
    for piece in span:
        piece.copy_(data[start : start + len(piece)], non_blocking=non_blocking)
        start += len(piece)


def _fill(data: torch.Tensor, span: Span, *, non_blocking: bool) -> None:
    start = 0
    for piece in span:
        data[start : start + len(piece)].copy_(piece, non_blocking=non_blocking)
        start += len(piece)
