"""What an implementation tells a simulation that no tensor shows: copies on a stream of their own, what one of several
processes holds of a model, and what stands for many of its like.

On `meta` there is nothing to copy and no stream, so a technique that moves tensors beside the computation says here what it
would move, and when the computation would wait. Outside a simulation nothing listens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")

RANK_VIEW: Final = "rank_view"
"""The stand-in (`memcfg_simulation`) that says how one of several processes holds the model: a `RankView`."""


GENERATION: Final = "generation"
"""The stand-in (`memcfg_simulation`) for what samples: a function from what `memcfg_generate` gave to what samples in its place.
A backend without one is not simulated."""


@dataclass(frozen=True)
class Together:
    """Modules whose weights are gathered together, before the first of them computes. `kept`: they stay until their gradients
    are there, instead of being let go after the forward and gathered again for the backward."""

    modules: tuple[torch.nn.Module, ...]
    kept: bool = False


@dataclass(frozen=True)
class RankView:
    """One rank's view of `world` processes that share a model.

    With `units`, weights, gradients and optimizer states are shards, and what it gives is gathered whole while it computes, as
    torch's `fully_shard` does; a weight belongs to the first that has it, and what belongs to none is gathered for the whole
    step. Without, each process holds everything, and a second copy of the gradients in the buckets that are averaged.
    `unforeseen`: what the allocator may hold beyond the prediction, as a share of it; blocks of other streams, whose times no
    simulation knows."""

    world: int
    units: Callable[[torch.nn.Module], Sequence[Together]] | None = None
    unforeseen: float = 0.0


class Beside(Protocol):
    """The time of a simulation, in seconds since its beginning: on a second stream, and on the computation's own."""

    def copy_beside(self, size: int) -> float: ...

    def wait(self, until: float) -> None: ...

    def now(self) -> float: ...

    modes: int

    def kernel(self, size: int) -> None: ...

    def later(self, seconds: float) -> None: ...


class Watching(Protocol):
    """What sees the storages of a simulation. `fine`: whether what lies between the beginning and the end of a repetition is of
    interest too."""

    fine: bool

    @property
    def clock(self) -> Beside: ...

    def name(self, tensor: torch.Tensor, kind: str) -> None: ...

    def arrived(self, tensor: torch.Tensor) -> None: ...

    def emptied(self) -> None: ...

    def repeated(self, items: Iterable[Item], alike: Callable[[Item], Any]) -> Iterator[Item]: ...


_watching: ContextVar[Watching | None] = ContextVar("memcfg_simulated", default=None)


def copied(size: int) -> float | None:
    """`size` bytes are copied between device and host, beside the computation. Returns when that will be through."""
    clock = _clock()
    return None if clock is None else clock.copy_beside(size)


def awaited(until: float | None) -> None:
    """The computation waits for a copy, by what `copied` returned."""
    clock = _clock()
    if clock is not None and until is not None:
        clock.wait(until)


def launched(size: int) -> None:
    """A kernel is launched that no operator shows, and that reads and writes `size` bytes."""
    clock = _clock()
    if clock is not None:
        clock.kernel(size)


@contextmanager
def interpreted() -> Iterator[None]:
    """Within this a dispatch mode in Python sees each operation before it is launched."""
    clock = _clock()
    if clock is None:
        yield
        return
    clock.modes += 1
    try:
        yield
    finally:
        clock.modes -= 1


def simulating() -> bool:
    """Whether what runs is simulated: tensors without storage are then worked with as if they had one."""
    return _watching.get() is not None


def now() -> float:
    """The time of the simulation, in seconds; 0 outside one."""
    clock = _clock()
    return 0.0 if clock is None else clock.now()


def passed(seconds: float) -> None:
    """So much time passes as if what takes it had been simulated."""
    clock = _clock()
    if clock is not None:
        clock.later(seconds)


def named(tensor: torch.Tensor, kind: str) -> None:
    """Say what a tensor's storage is for."""
    watcher = _watching.get()
    if watcher is not None:
        watcher.name(tensor, kind)


def arrived(tensor: torch.Tensor) -> None:
    """A tensor that was made unseen is on the device from now on."""
    watcher = _watching.get()
    if watcher is not None:
        watcher.arrived(tensor)


def emptied() -> None:
    """The allocator gives whole cached segments back, as `torch.cuda.empty_cache` makes it."""
    watcher = _watching.get()
    if watcher is not None:
        watcher.emptied()


def repeated(items: Iterable[Item], alike: Callable[[Item], Any]) -> Iterator[Item]:
    """The items of a loop whose rounds are equal but for what tensors hold, wherever `alike` gives the same of their items. A
    simulation runs them until two rounds in a row did the same, and takes it that those which are alike and follow do so too:
    everything that they would show is told, but the loop does not see their items. Elsewhere all are given.

        for span in repeated(spans, lambda span: span.stop - span.start):
            out[span] = function(hidden[span])
    """
    watcher = _watching.get()
    return iter(items) if watcher is None else watcher.repeated(items, alike)


def fine() -> bool:
    """Whether a repetition is simulated more than at its beginning and its end, where its peak lies: what is in between
    shows how the allocator's blocks come to lie."""
    watcher = _watching.get()
    return watcher is None or watcher.fine


def _clock() -> Beside | None:
    watcher = _watching.get()
    return None if watcher is None else watcher.clock


@contextmanager
def listening(watcher: Watching) -> Iterator[None]:
    """While a simulation runs, it is told."""
    token = _watching.set(watcher)
    try:
        yield
    finally:
        _watching.reset(token)
