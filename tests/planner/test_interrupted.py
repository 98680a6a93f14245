"""`predict` and `plan` as processes of their own that are interrupted: what is said, the exit code, what is left behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

WORDS = ("assume.device=h100", "model=shape", "model.preset=smollm2-135m", "budget=80gib")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def begun(python: str, cache: Path, command: str, errors: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "HF_HUB_OFFLINE": "1", "COLUMNS": "80", "TERM": "xterm"}
    return subprocess.Popen(
        [python, "-m", "memcfg", command, *WORDS], cwd=cache, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
    )  # fmt: skip


def until(file: int, text: str, seconds: float = 240) -> str:
    """What is written, up to where `text` is in it (or, where it is empty, up to the end)."""
    said, end = "", time.monotonic() + seconds
    while not text or text not in said:
        assert time.monotonic() < end, said
        try:
            piece = os.read(file, 1 << 16)
        except OSError:  # a terminal whose last program has gone
            break
        if not piece:
            break
        said += piece.decode()
    return said


def kept(cache: Path) -> list[str]:
    return [file.name for file in cache.rglob("*") if file.is_file() and file.suffix != ".json"]


def test_on_a_terminal_a_bar_says_how_far_a_plan_is_and_an_interrupt_ends_it(warm_python: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = begun(warm_python, tmp_path, "plan", theirs)
    os.close(theirs)
    said = until(ours, "outlined 2 of ")
    assert "━" in said
    process.send_signal(signal.SIGINT)
    rest = ESCAPES.sub("", until(ours, ""))
    assert rest.rstrip().endswith("interrupted")
    assert "Traceback" not in rest
    assert "ignored" not in rest
    assert process.wait(60) == 130
    assert process.stdout is not None
    assert process.stdout.read() == b""
    assert kept(tmp_path) == []


def test_elsewhere_there_is_no_bar_and_an_interrupt_ends_a_prediction(warm_python: str, tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    process = begun(warm_python, tmp_path, "predict", theirs)
    os.close(theirs)
    said = until(ours, "simulating one step ...\n")
    time.sleep(0.3)  # it has begun
    process.send_signal(signal.SIGINT)
    said += until(ours, "")
    assert said == "simulating one step ...\ninterrupted\n"
    assert process.wait(60) == 130
    assert process.stdout is not None
    assert process.stdout.read() == b""
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]
