"""`metrics.jsonl` and what it is made of: throughput measured over training alone, one line for each logged step."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from memcfg.errors import Problem, RunError
from memcfg.files import reason, write_atomic


class Meter:
    """Tokens and seconds of training steps, over the window since the last reading and over the whole run.

    Evaluating, saving and starting up are not training: the clock runs from `start` to `stop` only. On a GPU the host
    runs ahead of the device, so a window is exact where it ends with reading the loss, as a logged step does."""

    def __init__(self) -> None:
        self.tokens, self.seconds = 0, 0.0
        self._window_tokens, self._window_seconds = 0, 0.0
        self._steps, self._empty = 0, 0
        self._since: float | None = None

    def start(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> None:
        if self._since is not None:
            self._window_seconds += time.perf_counter() - self._since
            self._since = None

    def add(self, tokens: int, *, empty: bool = False) -> None:
        """Count one step. `empty`: it had no target, so that its loss of zero says nothing."""
        self._window_tokens += tokens
        self._steps, self._empty = self._steps + 1, self._empty + empty

    def share_counted(self) -> float:
        """What the window's mean loss must be multiplied with to leave out its empty steps; nan if there are no others."""
        return self._steps / (self._steps - self._empty) if self._steps > self._empty else math.nan

    def read(self, total: Callable[[int], int] = int) -> float:
        """Tokens a second in the window, which is closed; its numbers move to the totals. `total` sums the tokens over
        the processes that share the run."""
        running = self._since is not None
        self.stop()
        tokens, seconds = total(self._window_tokens), self._window_seconds
        self.tokens, self.seconds = self.tokens + tokens, self.seconds + seconds
        self._window_tokens, self._window_seconds = 0, 0.0
        self._steps, self._empty = 0, 0
        if running:
            self.start()
        return tokens / seconds if seconds else 0.0

    def discard(self, total: Callable[[int], int] = int) -> float:
        """Tokens a second in the window, which is forgotten: what was measured was no training."""
        tokens, seconds = self.tokens, self.seconds
        self.stop()
        rate = self.read(total)
        self.tokens, self.seconds = tokens, seconds
        return rate

    def rate(self) -> float:
        """Tokens a second over all closed windows."""
        return self.tokens / self.seconds if self.seconds else 0.0


class MetricsFile:
    """The lines of `metrics.jsonl`. What is noted for one step (loss, then an evaluation) becomes one line, written when
    the step is over: `flush`. An interrupted run keeps every line written so far. Without a path nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []
        self._open: dict[str, Any] = {}

    def go_on(self, history: Path | None, step: int) -> None:
        """Begin with the lines of `history` up to a step, which need not be this file; later ones and a torn one go."""
        self.lines = [line for line in read(history) if line["step"] <= step] if history else []
        if self.path is not None:
            write_atomic(self.path, "".join(json.dumps(line) + "\n" for line in self.lines))

    def note(self, step: int, values: Mapping[str, Any]) -> None:
        """Add values to the line of a step."""
        if self._open and self._open["step"] != step:
            self.flush()
        self._open = {"step": step} | self._open | {k: _finite(v) for k, v in values.items()}

    def flush(self) -> dict[str, Any]:
        """Write the open line, if there is one, and return it. Raises `RunError` where the file cannot be written."""
        line, self._open = self._open, {}
        if line:
            self.lines.append(line)
        if line and self.path is not None:
            try:
                with self.path.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(line) + "\n")
            except OSError as error:
                raise RunError(Problem(f"cannot write `{self.path}`: {reason(error)}", key="run.dir")) from error
        return line

    def first(self, key: str) -> Any:
        return next((line[key] for line in self.lines if key in line), None)

    def last(self, key: str) -> Any:
        return next((line[key] for line in reversed(self.lines) if key in line), None)

    def tenth(self, key: str, *, first: bool) -> float | None:
        """The mean over the first or the last tenth of the lines that have the key, at least one; None where none has."""
        values = [line[key] for line in self.lines if line.get(key) is not None]
        size = max(1, len(values) // 10)
        some = values[:size] if first else values[-size:]
        return sum(some) / len(some) if some else None


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of metrics; none where there is no file. A line that was not written to its end is left out."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "step" in line:
            lines.append(line)
    return lines


def _finite(value: Any) -> Any:
    """JSON has no word for a number that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
