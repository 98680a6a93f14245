"""A run that is asked to stop finishes its step and saves it: SIGTERM, or SIGINT once. Asked twice, it stops at once.

While steps are taken the signals only leave a note, which is read where a step ends. On several processes all of them read
the same sum of notes, so that they stop after the same step, whichever was asked. Once the checkpoint is written the
signal is handed to whoever heeded it before, which ends the program."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from memcfg.signals import heed

HEEDED: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """What a run was asked while it took steps. `tell` is given what a user should know."""

    def __init__(self, tell: Callable[[str], Any] = lambda text: None) -> None:
        self.tell = tell
        self.number: int | None = None
        """The signal that came."""
        self._before: dict[int, Any] = {}
        self._sum: torch.Tensor | None = None

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Signals leave a note in here; afterwards they do what they did before. Only the main thread may."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._before = {number: signal.getsignal(number) for number in HEEDED}
        for number, handler in self._before.items():
            if handler is not signal.SIG_IGN:
                heed(number, self._note)
        try:
            yield
        finally:
            self._restore()

    def _note(self, number: int, frame: Any) -> None:
        if self.number is not None:
            self._restore()
            self.hand_on(number)
            return
        self.number = number
        self.tell("stopping after this step, which is saved; ask again to stop at once")

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hand_on(self, number: int | None = None) -> None:
        """Do what the signal did before. Nothing if none came."""
        number = number or self.number
        if number is None:
            return
        handler = self._before.get(number, signal.SIG_DFL)
        if callable(handler):
            handler(number, None)
        else:
            os.kill(os.getpid(), number)

    def asked(self, accelerator: Any) -> bool:
        """Whether to stop after this step. On a GPU the sum of the step before is read, which costs no waiting."""
        if accelerator.num_processes == 1:
            return self.number is not None
        note = torch.tensor(float(self.number or 0), device=accelerator.device)
        late, self._sum = self._sum, accelerator.reduce(note, "sum")
        if accelerator.device.type == "cpu":
            late = self._sum
        if late is None or not float(late):
            return False
        self.number = self.number or signal.SIGTERM
        return True
