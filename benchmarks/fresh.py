"""Runs each case of a benchmark in a process of its own, one at a time on the GPU.

The next processes load their libraries while one measures: each says that it is ready and waits to be told."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

READY, RESULT = "READY", "RESULT "


def run_all(
    script: str, cases: Sequence[str], arguments: Sequence[str], out: Path, timeout: float = 600, ahead: int = 1
) -> None:
    """Run the cases in order; each result is printed (its beginning, if it is long) and appended to the JSON Lines file `out`.

    So many processes as `ahead` says load while one measures."""
    out.parent.mkdir(parents=True, exist_ok=True)
    waiting = list(cases)
    started: deque[subprocess.Popen[str]] = deque()
    for case in cases:
        while waiting and len(started) <= ahead:
            started.append(_start(script, waiting.pop(0), arguments))
        line = json.dumps({"case": case, **_result(started.popleft(), timeout)})
        print(line[:500], flush=True)
        with out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _result(process: subprocess.Popen[str], timeout: float) -> dict[str, Any]:
    """Tell a process to measure, and what it says."""
    lines = _until_ready(process)
    began = time.perf_counter()
    try:
        text, _ = process.communicate("go\n", timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        text = f"no result within {timeout:g} s"
    found = [line for line in text.splitlines() if line.startswith(RESULT)]
    result = json.loads(found[-1].removeprefix(RESULT)) if found else {"error": (lines + text)[-2000:]}
    return {**result, "wall": round(time.perf_counter() - began, 2)}


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
