"""What an implementation tells a running simulation that no tensor shows: copies on a stream of their own.

On `meta` there is nothing to copy and no stream, so a technique that moves tensors beside the computation says here what it
would move, and when the computation would wait. Outside a simulation nothing listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Beside(Protocol):
    """The time on a second stream, in seconds since the simulation's beginning."""

    def copy_beside(self, size: int) -> float: ...

    def wait(self, until: float) -> None: ...


_listening: ContextVar[Beside | None] = ContextVar("memcfg_simulated", default=None)


def copied(size: int) -> float | None:
    """`size` bytes are copied between device and host, beside the computation. Returns when that will be through."""
    clock = _listening.get()
    return None if clock is None else clock.copy_beside(size)


def awaited(until: float | None) -> None:
    """The computation waits for a copy, by what `copied` returned."""
    clock = _listening.get()
    if clock is not None and until is not None:
        clock.wait(until)


@contextmanager
def listening(clock: Beside) -> Iterator[None]:
    """While a simulation runs, its clock is told."""
    token = _listening.set(clock)
    try:
        yield
    finally:
        _listening.reset(token)
