"""Simulations that do not depend on one another, on all the cores that this process may use.

This process is forked, each process takes the next item until none is left, and what the others found comes back through a pipe.
Forked, and not begun anew: loading torch and the model's classes takes as long as many simulations. What goes wrong elsewhere is
not told from there. It is missing from what is found, and whoever asked runs it again and meets the error itself."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST: Final = 4
"""Processes. Each holds what it changes of a loaded torch once more."""
LONGEST: Final = 255
"""Items: each is one byte in the pipe that they are taken from."""


def side_by_side(
    work: Callable[[Item], Result], items: Sequence[Item], told: Callable[[int], Any] = lambda done: None
) -> dict[int, Result]:
    """What `work` gives for the items, by their place; those for which it raised are missing. Nothing at all where there is one core,
    or where this process cannot be forked. `told` is called in this process with how many are through, nearly."""
    processes = min(cores(), len(items), MOST)
    if processes < 2 or len(items) > LONGEST or not forkable():
        return {}
    places, end = os.pipe()
    os.write(end, bytes(range(len(items))))
    os.close(end)
    others = [_forked(work, items, places) for _ in range(processes - 1)]
    try:
        found = _taken(work, items, places, lambda done: told(min(len(items), done * processes)))
        for _, answers in others:
            found |= _answer(answers)
    except BaseException:
        for process, _ in others:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        raise
    finally:
        os.close(places)
        for process, answers in others:
            os.close(answers)
            os.waitpid(process, 0)
    return found


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def forkable() -> bool:
    """Whether nothing in this process would be broken in a copy of it: other threads, which may hold locks, or a device."""
    torch = sys.modules.get("torch")
    return sys.platform == "linux" and threading.active_count() == 1 and not (torch and torch.cuda.is_initialized())


def _forked(work: Callable[[Item], Any], items: Sequence[Item], places: int) -> tuple[int, int]:
    """A process that takes items too, and where its answer can be read."""
    answers, end = os.pipe()
    begun_by = os.getpid()
    process = os.fork()
    if process:
        os.close(end)
        return process, answers
    try:
        os.close(answers)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)  # threads of the other process are not here, and would be waited for
        with open(end, "wb") as file:
            pickle.dump(_taken(work, items, places, lambda done: _wanted_by(begun_by)), file)
    finally:
        os._exit(0)


def _wanted_by(process: int) -> None:
    """End, where the process that asked is no more."""
    if os.getppid() != process:
        os._exit(1)


def _taken(
    work: Callable[[Item], Result], items: Sequence[Item], places: int, told: Callable[[int], Any]
) -> dict[int, Result]:
    """What this process finds of the items, until none is left."""
    found: dict[int, Result] = {}
    done = 0
    while place := os.read(places, 1):
        with suppress(Exception):
            found[place[0]] = work(items[place[0]])
        done += 1
        told(done)
    return found


def _answer(answers: int) -> dict[int, Any]:
    """What another process found; nothing where it did not come to an end."""
    with open(answers, "rb", closefd=False) as file, suppress(EOFError, pickle.UnpicklingError):
        found: dict[int, Any] = pickle.load(file)
        return found
    return {}
