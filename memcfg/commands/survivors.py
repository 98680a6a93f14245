"""Where a process of a run was killed: whoever is left writes down how the run ended, once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memcfg.commands.journal import JOURNAL_FILE, end, failure
from memcfg.commands.ranks import lost, rank
from memcfg.errors import RunError
from memcfg.signals import unhurried

if TYPE_CHECKING:
    from memcfg.report.console import Terminal

PATIENCE: Final = 2.0
"""Seconds in which the first process writes it down, if it is left. Launchers wait longer before they kill."""


@contextmanager
def standing_by(folder: Path, terminal: Terminal) -> Iterator[None]:
    """For every process but the first: if that one is gone, one of the others keeps its journal and speaks for it."""
    try:
        yield
    except BaseException as error:
        gone = lost(error)
        if gone is not None:
            with unhurried():
                said = _left_open(folder)
                if said is not None:
                    gone.stands_in = True
                    end(folder, said | failure(gone), terminal)
        raise


def close(folder: Path, error: BaseException, terminal: Terminal) -> None:
    """Write down how the processes of a run ended that were started here, where none of them could, or knew that one was
    killed."""
    said = _said(folder)
    if said is not None and (said.get("status") == "running" or isinstance(error, RunError)):
        end(folder, said | failure(error), terminal)


def _left_open(folder: Path) -> dict[str, Any] | None:
    """What the journal says, if nobody ends it within a while; the lower ranks wait less."""
    until = time.monotonic() + PATIENCE + 0.5 * rank()
    while (said := _said(folder)) is not None and said.get("status") == "running":
        if time.monotonic() > until:
            return said
        time.sleep(0.1)
    return None


def _said(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / JOURNAL_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
