"""What an implementation tells a simulation that no tensor shows: copies on a stream of their own, and what one of several
processes holds of a model.

On `meta` there is nothing to copy and no stream, so a technique that moves tensors beside the computation says here what it
would move, and when the computation would wait. Outside a simulation nothing listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import torch

RANK_VIEW: Final = "rank_view"
"""The stand-in (`memcfg_simulation`) that says how one of several processes holds the model: a `RankView`."""


@dataclass(frozen=True)
class RankView:
    """One rank's view of `world` processes that share a model.

    With `units`, weights, gradients and optimizer states are shards, and each of the modules that it names is gathered whole
    while it computes, as torch's `fully_shard` does; what belongs to no unit is gathered for the whole step. Without, each
    process holds everything, and a second copy of the gradients in the buckets that are averaged."""

    world: int
    units: Callable[[torch.nn.Module], Sequence[torch.nn.Module]] | None = None


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


def simulating() -> bool:
    """Whether what runs is simulated: tensors without storage are then worked with as if they had one."""
    return _listening.get() is not None


@contextmanager
def listening(clock: Beside) -> Iterator[None]:
    """While a simulation runs, its clock is told."""
    token = _listening.set(clock)
    try:
        yield
    finally:
        _listening.reset(token)
