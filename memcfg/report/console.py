"""Where text goes: results to stdout, talk and errors to stderr, colour only for a terminal that wants it.

rich is imported on first use of a console, so that `--json` and `--help` never pay for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memcfg.errors import RunError
from memcfg.files import reason
from memcfg.report.words import width

if TYPE_CHECKING:
    from rich.console import Console


_RESULTS: list[Any] = []
"""Where results go while nothing else may come between them."""


@contextmanager
def results_alone() -> Iterator[None]:
    """While this holds stdout carries results alone: what libraries print there goes to stderr."""
    _RESULTS.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _RESULTS.pop()


class Unwritable(RunError):
    """Results cannot be printed, so that an error is not to be printed among them either."""


class Terminal:
    """`quiet` silences talk; results and errors are always printed. `verbose` adds details to it. `mute` silences results
    too: another process of the same run prints them. `json`: results are objects. Colour obeys `NO_COLOR` as well as
    `color`, and is there without a terminal where `FORCE_COLOR` is set."""

    def __init__(
        self, *, quiet: bool = False, color: bool = True, mute: bool = False, verbose: bool = False, json: bool = False
    ) -> None:
        self.quiet, self.mute, self.verbose, self.json = quiet, mute, verbose, json
        self.color = color and not os.environ.get("NO_COLOR")

    def show(self, *things: Any) -> None:
        """Print a result."""
        if not self.mute:
            self._print("out", _RESULTS[-1] if _RESULTS else sys.stdout, things)

    def say(self, *things: Any) -> None:
        """Print talk: what is going on, not what was asked for."""
        if not self.quiet and not self.mute and sys.stderr is not None:
            self._print("err", sys.stderr, things)

    def detail(self, text: str) -> None:
        """Print talk that only who asks for it wants to hear."""
        if self.verbose:
            self.say(text)

    def fail(self, text: str) -> None:
        """Print an error, its first word in red where there is colour. Lines are kept: they may be commands to paste."""
        if self.color and (sys.stderr.isatty() or os.environ.get("FORCE_COLOR")):
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

        console = Console(
            stderr=stderr, color_system="auto" if self.color else None, highlight=False, markup=False, emoji=False
        )
        console.width = width()
        return console

    def _print(self, console: str, stream: Any, things: tuple[Any, ...]) -> None:
        """Raises `Unwritable` where the text cannot be written; that its reader went away is told as it is."""
        if stream is None:
            raise Unwritable("cannot write the output: it is closed")
        try:
            for thing in things:
                print(thing if isinstance(thing, str) else _rendered(getattr(self, console), thing), file=stream)
            stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            _discard(stream)
            raise Unwritable(f"cannot write the output: {reason(error)}") from error


def _discard(stream: Any) -> None:
    """Point a stream at nothing, so that the interpreter's last flush does not complain."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


def _rendered(console: Console, thing: Any) -> str:
    """What rich makes of a table, without the blanks with which it fills every line."""
    with console.capture() as captured:
        console.print(thing)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
