"""Runs each case of a benchmark in a process of its own, one at a time on the GPU.

The next process loads its libraries while the one before it measures: it says that it is ready and waits to be told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

READY, RESULT = "READY", "RESULT "


def run_all(script: str, cases: Sequence[str], arguments: Sequence[str], out: Path, timeout: float = 600) -> None:
    """Run the cases in order; each result is printed and appended to the JSON Lines file `out`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    processes = [None, *cases]
    started = _start(script, cases[0], arguments) if cases else None
    for place, case in enumerate(cases, start=1):
        process, started = started, None
        assert process is not None
        lines = _until_ready(process)
        if place + 1 < len(processes):
            started = _start(script, str(processes[place + 1]), arguments)
        try:
            text, _ = process.communicate("go\n", timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            text = ""
        found = [line for line in text.splitlines() if line.startswith(RESULT)]
        result = json.loads(found[-1].removeprefix(RESULT)) if found else {"error": (lines + text)[-2000:]}
        line = json.dumps({"case": case, **result})
        print(line, flush=True)
        with out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def measured(prepare: Callable[[], Callable[[], dict[str, Any]]]) -> None:
    """In the process of a case: load everything, wait, measure, tell."""
    measure = prepare()
    print(READY, flush=True)
    if not sys.stdin.isatty():
        sys.stdin.readline()
    try:
        result = measure()
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {str(error)[:1500]}"}
    print(RESULT + json.dumps(result), flush=True)


def _start(script: str, case: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, script, "--case", case, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _until_ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        if line.strip() == READY:
            break
        lines.append(line)
    return "".join(lines)
