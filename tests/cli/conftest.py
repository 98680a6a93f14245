"""The program, called in this process or as its own."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest


@pytest.fixture
def memcfg(capsys, tmp_path, monkeypatch):
    """`memcfg("resolve", ...)` in an empty folder: exit code, stdout, stderr."""
    from memcfg.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMCFG_DEBUG", raising=False)

    def run(*words: str):
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "COLUMNS": "80"}


def run_by(executable: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [executable, "-m", "memcfg", *words]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="session")
def program(light_python):
    """`program("resolve", ..., cwd=...)` as a process of its own, forked from one that has loaded the command line."""
    return partial(run_by, light_python)


@pytest.fixture(scope="session")
def real_program():
    """The same, begun from nothing as a user begins it."""
    return partial(run_by, sys.executable)


@pytest.fixture(scope="session")
def warm_program(warm_python):
    """The same for what trains: the process is forked from one that has loaded torch."""
    return partial(run_by, warm_python)


@pytest.fixture(scope="session")
def python():
    """Run a line of Python in a process of its own; returns what it printed."""

    def run(code: str, cwd: Path) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=cwd,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout

    return run


@pytest.fixture(scope="session")
def too_wide():
    """`too_wide(text, columns)`: lines that are wider than that without need. What is to be pasted, and a word of its own, are
    not broken."""

    def found(text: str, columns: int) -> list[str]:
        return [line for line in text.splitlines() if len(line) > columns and not _one_piece(line, columns)]

    return found


def _one_piece(line: str, columns: int) -> bool:
    stuck = re.sub("`[^`]*`", lambda found: found[0].replace(" ", "_"), line)
    indent = len(line) - len(line.lstrip())
    return indent + max(map(len, stuck.split())) > columns * 0.75
