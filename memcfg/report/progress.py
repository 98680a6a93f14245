"""A run while it goes on: stages, a progress bar on a terminal, plain lines elsewhere. All of it is talk."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memcfg.report.console import Terminal
from memcfg.report.words import duration, figure

if TYPE_CHECKING:
    from rich.progress import Progress


class TrainingTalk:
    """What the engine reports, said on `terminal`. Implements `memcfg.engine.reporter.Reporter`."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._bar: Progress | None = None
        self._task: Any = None
        self._steps = 0
        self._begun = 0.0
        self._from: int | None = None
        self._latest: dict[str, Any] = {}
        self._waiting: list[str] = []
        self._stage: tuple[str, float] | None = None

    def stage(self, text: str) -> None:
        self._timed()
        self._stage = (text, time.monotonic())
        if self._bar is None:
            self.terminal.say(f"{text} ...")

    def note(self, text: str) -> None:
        self._waiting.append(text)
        self._say_waiting()

    def _say_waiting(self) -> None:
        """A signal may come in the middle of a line: what it has to say is then said before the next."""
        while self._waiting:
            text = self._waiting.pop(0)
            try:
                self.terminal.say(text)
            except RuntimeError:
                self._waiting.insert(0, text)
                return

    def _timed(self) -> None:
        """Say how long the last stage took, to who wants details."""
        if self._stage is not None:
            text, begun = self._stage
            self.terminal.detail(f"{text} took {duration(time.monotonic() - begun)}")
            self._stage = None

    def begin(self, steps: int) -> None:
        self._timed()
        self._steps, self._begun, self._from = steps, time.monotonic(), None
        if not self.terminal.quiet and self.terminal.err.is_terminal:
            self._bar = _bar(self.terminal)
            self._task = self._bar.add_task("training", total=steps, said="")
            self._bar.start()

    def advance(self, step: int, values: Mapping[str, Any]) -> None:
        self._say_waiting()
        if self._from is None:
            self._from = step  # told before the first step is taken
        self._latest.update(values)
        self._latest = {
            name: number for name, number in self._latest.items() if number is not None
        }  # none: not known now
        if self._bar is not None:
            self._bar.update(self._task, completed=step, said=_said(self._latest))
        elif values:
            self._line(step)
            self._latest.pop("eval_loss", None)  # a line tells what was measured since the last one

    def _line(self, step: int) -> None:
        assert self._from is not None
        if step == 0:
            self.terminal.say(f"before training: {_said(self._latest)}")
            return
        left = (time.monotonic() - self._begun) / max(step - self._from, 1) * (self._steps - step)
        self.terminal.say(f"step {step}/{self._steps}  {_said(self._latest)}  {duration(left)} left")

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _said(values: Mapping[str, Any]) -> str:
    parts = [f"loss {figure(values['loss'])}"] if "loss" in values else []
    parts += [f"reward {figure(values['reward'])}"] if "reward" in values else []
    parts += [f"held-out {values['eval_loss']:.3f}"] if "eval_loss" in values else []
    parts += [f"{values['tokens_per_second']:,.0f} tokens/s"] if values.get("tokens_per_second") else []
    return "  ".join(parts)


def _bar(terminal: Terminal) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(bar_width=18), MofNCompleteColumn(),
        TextColumn("{task.fields[said]}", markup=False), TimeRemainingColumn(compact=True), console=terminal.err,
    )  # fmt: skip
