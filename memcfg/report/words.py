"""Values, numbers and lists as text: lower case, backticks around what can be typed, readable without colour."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Final

from memcfg.solver.expr import UNSET, show

WIDTH: Final = 80
"""Columns of what is printed, at the most."""

NARROWEST: Final = 30
"""Columns that are written to even where there are fewer."""

GIB: Final = 2**30

LARGE: Final = 1e6
"""Losses and rewards from here on are written to a few digits."""

_IN_TICKS = re.compile("`[^`]*`")
_STUCK: Final = "\x00"
"""Stands for a blank at which no line may end; text has none of its own."""


def width() -> int:
    """Columns to write in: those of the terminal, or that `COLUMNS` states, up to `WIDTH`."""
    return max(NARROWEST, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def value(thing: Any) -> str:
    """A value as one would type it."""
    if isinstance(thing, (list, tuple)):
        return f"[{', '.join(value(item) for item in thing)}]"
    if isinstance(thing, Mapping):
        return f"{{{', '.join(f'{key}: {value(item)}' for key, item in thing.items())}}}"
    if isinstance(thing, str) and thing == "":
        return "''"
    return show(thing)


def of(key: str, thing: Any) -> str:
    """The value of an option; sizes in bytes are shown in GiB where that is shorter and exact."""
    if key.endswith(".bytes") and type(thing) is int and thing and thing % (GIB // 16) == 0:
        return f"{thing / GIB:g}gib"
    return "unset" if thing is UNSET else value(thing)


def listed(words: Iterable[str], joint: str = "or") -> str:
    """`a`, `b` or `c`."""
    quoted = [f"`{word}`" for word in words]
    return f" {joint} ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def wrapped(text: str, indent: str = "", first: str | None = None) -> list[str]:
    """Lines of at most `width()` columns, unless a word, or what stands in backticks to be pasted, is longer."""
    lines: list[str] = []
    for paragraph in _IN_TICKS.sub(lambda match: match[0].replace(" ", _STUCK), text).splitlines() or [""]:
        lines += textwrap.wrap(
            paragraph, width(), initial_indent=indent if lines or first is None else first, subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        ) or [""]  # fmt: skip
    return [line.replace(_STUCK, " ") for line in lines]


def count(number: int, noun: str) -> str:
    """1 option, 2 options."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def gib(size: float) -> str:
    """Bytes as GiB, or in a smaller unit where there is less than one."""
    if size >= GIB:
        return f"{size / GIB:.2f} GiB"
    return f"{size / 2**20:.0f} MiB" if size >= 2**20 or not size else f"{size / 2**10:.3g} KiB"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def figure(value: float) -> str:
    """A loss or a reward, to thousandths; a large one to a few digits."""
    return f"{value:.3f}" if abs(value) < LARGE else f"{value:.4g}"
