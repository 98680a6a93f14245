"""What a run says while it goes on, whenever it is asked to say it."""

from __future__ import annotations

import io
from typing import Any

import pytest

from memcfg.report.console import Terminal
from memcfg.report.progress import TrainingTalk


class Interrupted(io.StringIO):
    """A stream that a signal interrupts while it writes the line of the second step: the handler has something to say, and
    may not write."""

    def __init__(self) -> None:
        super().__init__()
        self.talk: Any = None
        self.inside = False

    def write(self, text: str) -> int:
        if self.inside:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")
        written = super().write(text)
        if text.startswith("step 2/"):
            self.inside = True
            self.talk.note("stopping after this step")
            self.talk.note("and saving it")
            self.inside = False
        return written


def test_what_a_signal_may_not_say_in_the_middle_of_a_line_is_said_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Interrupted()
    monkeypatch.setattr("sys.stderr", stream)
    stream.talk = TrainingTalk(Terminal(color=False))
    stream.talk.begin(3)
    for step in range(4):
        stream.talk.advance(step, {"loss": 1.0} if step else {})
    assert [line.split("  ")[0] for line in stream.getvalue().splitlines()] == [
        "step 1/3",
        "step 2/3",
        "stopping after this step",
        "and saving it",
        "step 3/3",
    ]


def test_a_step_without_a_loss_does_not_show_the_one_before(capsys: pytest.CaptureFixture[str]) -> None:
    """All its completions may have been left out, say."""
    talk = TrainingTalk(Terminal(color=False))
    talk.begin(3)
    talk.advance(0, {})
    for step, loss in ((1, 0.25), (2, None), (3, 0.5)):
        talk.advance(step, {"loss": loss, "reward": 5e37 * step})
    assert [line.split("  ")[:2] for line in capsys.readouterr().err.splitlines()] == [
        ["step 1/3", "loss 0.250"],
        ["step 2/3", "reward 1e+38"],
        ["step 3/3", "loss 0.500"],
    ]
