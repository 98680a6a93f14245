"""`distributed.processes=N`: the processes of a run, started on this machine and watched until the last has ended.

What the parent has resolved, all run: each is `memcfg run` on the same plan file, told its place as `torchrun` would tell
it. If one fails all are stopped; signals are handed on; and if the parent dies, however it dies, so do they."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from memcfg.commands.ranks import TYPED
from memcfg.errors import MemcfgError, RunError
from memcfg.signals import heed

POLL: Final = 0.1
"""Seconds between two looks at the processes."""

PATIENCE: Final = 20.0
"""Seconds that the others have to end after one has failed."""

Process = subprocess.Popen[bytes]


class Told(MemcfgError):
    """A process ended with an error, which it has told itself."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code


def run_together(
    plan_file: Path, count: int, flags: Sequence[str], secrets: Mapping[str, str], typed: Sequence[str], *, cpu: bool
) -> None:  # fmt: skip
    """Run a plan in `count` processes in its own folder. `typed`: the words that the user wrote. Raises as `together`."""
    command = [sys.executable, "-m", "memcfg", "run", str(plan_file), f"run.dir={plan_file.parent}", *flags]
    environment = {**os.environ, **secrets, TYPED: json.dumps(typed)}
    if cpu:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    together(command, count, environment)


def together(command: list[str], count: int, environment: Mapping[str, str]) -> None:
    """Run a command in `count` processes that know of each other. Raises `Told` where one fails, `RunError` where one is
    killed, `KeyboardInterrupt` after an interrupt, once all have ended."""
    shared = {**environment, **_meeting_place(), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    places = [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    processes: list[Process] = []
    codes: list[int | None] = []
    with _handing_on(processes) as received:
        try:
            processes += [_started(command, place) for place in places]
            codes = _watch(processes, received)
        finally:
            _stop(processes)
    if received:
        from memcfg.cli import Terminated

        raise KeyboardInterrupt if received[0] == signal.SIGINT else Terminated
    _tell(codes)


def _meeting_place() -> dict[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}


def _started(command: list[str], environment: Mapping[str, str]) -> Process:
    # A session of its own: an interrupt from the keyboard comes once, from here, and not a second time from the terminal.
    return subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=_tie_to_parent)


def _tie_to_parent() -> None:
    """Let the kernel end this process when its parent ends, where the kernel can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextmanager
def _handing_on(processes: Sequence[Process]) -> Iterator[list[int]]:
    """While this holds, interrupts go to the processes. Gives the signals that came."""
    received: list[int] = []

    def hand_on(number: int, _: Any) -> None:
        received.append(number)
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    before = {number: heed(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(processes: Sequence[Process], received: Sequence[int]) -> list[int | None]:
    """Wait until all have ended, or one has failed; what is known then of how each ended. One that ends because it was asked
    to has not failed: the others may still be saving."""
    while None in (codes := [process.poll() for process in processes]):
        if set(codes) - {None, 0, *(128 + number for number in received)}:
            break
        time.sleep(POLL)
    return codes


def _stop(processes: Sequence[Process]) -> None:
    """End those that are still there: first asked, then not."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    end = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tell(codes: Sequence[int | None]) -> None:
    """Raise for the process that failed first: one that was killed before one that says it failed, which may only have
    noticed. `codes`: how each had ended when the others were still left alone."""
    ended = [(number, code) for number, code in enumerate(codes) if code]
    ended.sort(key=lambda end: end[1] != -signal.SIGKILL)  # what aborts beside it may be the consequence
    killed = next(((r, c) for r, c in ended if c < 0 and c != -signal.SIGTERM), None)
    failed = next(((r, c) for r, c in ended if c > 0 and c != 128 + signal.SIGTERM), None)
    if killed:
        why = " (out of memory on the host, most likely)" if killed[1] == -signal.SIGKILL else ""
        raise RunError(f"process {killed[0]} of {len(codes)} was ended by signal {-killed[1]}{why}; all were stopped")
    if failed:
        raise Told(f"process {failed[0]} of {len(codes)} ended with exit code {failed[1]}", failed[1])
    if ended:
        raise Told("the processes were terminated", 128 + signal.SIGTERM)
