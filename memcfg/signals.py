"""Handlers of signals that belong to this process alone.

A process that is forked (by a pool that prepares rows) inherits its parent's handlers. Where SIGTERM makes a note or raises,
a pool that ends its workers may lose one: what is raised while a process is still being made is lost, and whoever waits for
that worker waits for ever. So a forked process dies of SIGTERM as any other does, from its first moment on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_heeded: set[int] = set()
_held: list[Any] = []


def heed(number: int, handler: Callable[[int, Any], Any]) -> Any:
    """As `signal.signal`, for this process and not for those that it forks. Returns the handler before."""
    if not _heeded:
        os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_forget)
    _heeded.add(number)
    return signal.signal(number, handler)


@contextmanager
def unhurried() -> Iterator[None]:
    """A SIGTERM that comes while this holds is heeded at its end: for what takes a moment and is never made up for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = heed(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if came:
            os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def noted() -> Iterator[list[int]]:
    """An interrupt that comes while this holds is noted in the list, and raised at its end: for work that runs in the
    interpreter's own callbacks, which lose what is raised in them. Who looks at the list may raise it before. Interrupts that
    somebody else handles are left to them."""
    came: list[int] = []
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield came
        return
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            raise KeyboardInterrupt


def _hold() -> None:
    """A SIGTERM that arrives while the process is made waits until it has its own handler."""
    _held.append(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}))


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.pop())


def _forget() -> None:
    if signal.SIGTERM in _heeded:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release()
