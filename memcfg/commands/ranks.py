"""This process's place among those of a run, as its launcher told it, and who of them speaks.

The first process prints and writes. Another one prints nothing but an error that the first does not have: it waits a
moment before it does, and a launcher ends all processes as soon as one has failed, so one message is seen."""

from __future__ import annotations

import os
import time
from typing import Final

from memcfg.errors import Lost

GRACE: Final = 8.0
"""Seconds in which the first process can say what all of them ran into."""

TYPED: Final = "MEMCFG_TYPED"
"""Set for processes that memcfg itself starts: the words that the user typed, as JSON."""

LOST: Final = ("connection closed by peer", "connection reset by peer", "broken pipe", "nccl", "socket")
"""Words of what torch says where another process is gone: not the fault, but a consequence of it."""


def rank() -> int:
    """0 for the only process and for the first of several."""
    return int(os.environ.get("RANK") or 0) if launched() else 0


def launched() -> bool:
    """Whether a launcher started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE") or 1) > 1 and os.environ.get("RANK", "").isdigit()


def may_speak(error: BaseException) -> bool:
    """Whether this process is the one to tell an error, which may take a moment to find out."""
    if isinstance(error, Lost):  # where memcfg is the launcher, it knows who was lost
        return TYPED not in os.environ and (rank() == 0 or error.stands_in)
    if not launched() or (rank() == 0 and not _consequence(error)):
        return True
    try:
        time.sleep(GRACE + 0.2 * rank())
    except KeyboardInterrupt:  # ended by the launcher: somebody has spoken
        return False
    return True


def lost(error: BaseException | None) -> Lost | None:
    """What an error is about, if that is another process that is gone: a launcher that ends the others interrupts whatever
    they are doing about it."""
    while error is not None and not isinstance(error, Lost):
        error = error.__cause__ or error.__context__
    return error


def _consequence(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in LOST)
