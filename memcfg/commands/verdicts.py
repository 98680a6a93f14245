"""Exit codes of the commands that say whether something fits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NO_ANSWER: Final = 2


@contextmanager
def no_plan() -> Iterator[None]:
    """Within this an error ends the program as one without an answer, a fault too: 1 means that it does not fit."""
    try:
        yield
    except Exception as error:
        error.exit_code = NO_ANSWER  # type: ignore[attr-defined]
        raise
