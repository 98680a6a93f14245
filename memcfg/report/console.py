"""Where text goes: results to stdout, talk and errors to stderr, colour only for a terminal that wants it.

rich is imported on first use of a console, so that `--json` and `--help` never pay for it.
"""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memcfg.errors import RunError
from memcfg.report.words import WIDTH

if TYPE_CHECKING:
    from rich.console import Console


class Terminal:
    """`quiet` silences talk; results and errors are always printed. `mute` silences results too: another process of the
    same run prints them. Colour obeys `NO_COLOR` as well as `color`."""

    def __init__(self, *, quiet: bool = False, color: bool = True, mute: bool = False) -> None:
        self.quiet, self.mute = quiet, mute
        self.color = color and not os.environ.get("NO_COLOR")

    def show(self, *things: Any) -> None:
        """Print a result."""
        if not self.mute:
            self._print("out", sys.stdout, things)

    def say(self, *things: Any) -> None:
        """Print talk: what is going on, not what was asked for."""
        if not self.quiet and not self.mute and sys.stderr is not None:
            self._print("err", sys.stderr, things)

    def fail(self, text: str) -> None:
        """Print an error, its first word in red where there is colour. Lines are kept: they may be commands to paste."""
        if self.color and sys.stderr.isatty():
            text = text.replace("error:", "\033[1;31merror:\033[0m", 1)
        print(text, file=sys.stderr)

    @cached_property
    def out(self) -> Console:
        return self._console(stderr=False)

    @cached_property
    def err(self) -> Console:
        return self._console(stderr=True)

    def _console(self, stderr: bool) -> Console:
        from rich.console import Console

        console = Console(stderr=stderr, no_color=not self.color, highlight=False, markup=False, emoji=False)
        console.width = min(WIDTH, console.width)
        return console

    def _print(self, console: str, stream: Any, things: tuple[Any, ...]) -> None:
        """Raises `RunError` where the text cannot be written; that its reader went away is told as it is."""
        if stream is None:
            raise RunError("cannot write the output: it is closed")
        try:
            for thing in things:
                print(thing if isinstance(thing, str) else _rendered(getattr(self, console), thing), file=stream)
            stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            _discard(stream)
            raise RunError(f"cannot write the output: {error.strerror or error}") from error


def _discard(stream: Any) -> None:
    """Point a stream at nothing, so that the interpreter's last flush does not complain."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


def _rendered(console: Console, thing: Any) -> str:
    """What rich makes of a table, without the blanks with which it fills every line."""
    with console.capture() as captured:
        console.print(thing)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
