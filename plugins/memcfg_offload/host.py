"""Where moved bytes lie: chunks of host memory, or of a file, that are taken one after the other and used again.

What a step saves it gives back in the backward pass, so the chunks are a stack that is empty between micro-batches: its
size is what the largest micro-batch needed, whatever the shapes, and it never grows beyond that."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import psutil
import torch

from memcfg import Problem, RunError
from memcfg.files import reason
from memcfg_offload.groups import Limit, limits

CHUNK: Final = 128 << 20
"""Bytes of a chunk: a power of two, which is what torch rounds page-locked memory up to."""

RESERVE: Final = 0.05
"""The part of the host's memory that is left to everything else."""

Span = tuple[torch.Tensor, ...]
"""Where something lies: pieces of chunks (uint8, 1-D), in order."""

Make = Callable[[int], torch.Tensor]


class Refuse(Protocol):
    def __call__(self, size: int, what: str = ..., /) -> None: ...


class Stack:
    """Bytes handed out in order from chunks that `make(bytes)` provides. `refuse(bytes, what)` raises `RunError` where there is
    no room for so many more."""

    def __init__(self, make: Make, chunk: int = CHUNK, refuse: Refuse | None = None) -> None:
        self._make, self._chunk, self.refuse = make, chunk, refuse or refuse_beyond
        self._chunks: list[torch.Tensor] = []
        self._used = 0
        self.peak = 0

    @property
    def capacity(self) -> int:
        """Bytes of all chunks."""
        return len(self._chunks) * self._chunk

    def take(self, size: int) -> Span:
        """Room for `size` bytes. Raises `RunError` where there is none."""
        while self.capacity < self._used + size:
            self._chunks.append(self._make(self._chunk))
        span = tuple(self._pieces(self._used, self._used + size))
        self._used += size
        self.peak = max(self.peak, self._used)
        return span

    def reset(self) -> None:
        """Everything that was taken is given back."""
        self._used = 0

    def _pieces(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        while start < stop:
            index, inside = divmod(start, self._chunk)
            size = min(stop - start, self._chunk - inside)
            yield self._chunks[index][inside : inside + size]
            start += size


def memory(pin: bool) -> Make:
    """Chunks of host memory, page-locked where asked. Raises `RunError` before the host has none left."""

    def make(size: int) -> torch.Tensor:
        refuse_beyond(size)
        return torch.empty(size, dtype=torch.uint8, pin_memory=pin)

    return make


def files(folder: str | None) -> Make:
    """Chunks that are files, deleted as soon as they are open, so that nothing is left whatever happens."""

    def make(size: int) -> torch.Tensor:
        where = _folder(folder)
        try:
            where.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix="memcfg-offload-", dir=where)
            try:
                os.posix_fallocate(descriptor, 0, size)  # a full disk is told here, not by a signal while training
                return torch.from_file(name, shared=True, size=size, dtype=torch.uint8)
            finally:
                os.close(descriptor)
                os.unlink(name)
        except OSError as error:
            text = f"cannot keep {size >> 20} MiB of activations in `{where}`: {reason(error)}"
            raise RunError(Problem(text, key="offload.path", fix="choose a folder with room")) from error

    return make


@dataclass(frozen=True)
class Host:
    """The host's memory: `total` and `free` bytes, within the limits of this process's control group."""

    total: int
    free: int


def host() -> Host:
    seen = psutil.virtual_memory()
    bounds = [Limit(seen.total, seen.available), *limits()]
    return Host(min(bound.total for bound in bounds), min(bound.free for bound in bounds))


def amount(size: int) -> str:
    """Bytes, for people."""
    bits, unit = next((pair for pair in ((30, "GiB"), (20, "MiB")) if size >= 1 << pair[0]), (10, "KiB"))
    return f"{size / (1 << bits):.1f} {unit}"


def refuse_beyond(size: int, what: str = "activations") -> None:
    """Raise `RunError` if the host cannot spare `size` bytes more."""
    found = host()
    if size > found.free - RESERVE * found.total:
        text = (
            f"the host has {amount(found.free)} of {amount(found.total)} left, too little to take {amount(size)} of {what} and "
            f"leave {RESERVE:.0%} free"
        )
        fix = "offload.activations=disk, a smaller `run.batch_size` or a smaller `truncation.max_length`"
        raise RunError(Problem(text, key="offload.activations", fix=fix))


def refuse_beyond_disk(folder: str | None, size: int, what: str = "activations") -> None:
    """Raise `RunError` if the folder's disk has not got `size` bytes more."""
    where = _nearest(_folder(folder))
    free = shutil.disk_usage(where).free
    if size > free:
        text = f"{amount(free)} are free on the disk of `{where}`, too little for {amount(size)} of {what}"
        raise RunError(Problem(text, key="offload.path", fix="choose a folder with room"))


def _folder(folder: str | None) -> Path:
    return Path(folder).expanduser() if folder else Path(tempfile.gettempdir())


def _nearest(folder: Path) -> Path:
    """The folder, or what there is of its path."""
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())
