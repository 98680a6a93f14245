"""Runs each case of a benchmark in a process of its own, one at a time on the GPU.

The next processes load their libraries while one measures: each says that it is ready and waits to be told."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

READY, RESULT = "READY", "RESULT "


def program(
    script: str, doc: str, cases: Sequence[str], prepare: Callable[[str, argparse.Namespace], Callable[[], dict[str, Any]]],
    *, out: str, timeout: float = 600, ahead: int = 1, show: Callable[[Path], None] | None = None, **options: Any,
) -> None:  # fmt: skip
    """A benchmark's command line: each case in a process of its own, or with `--case`, in such a process, that one.

    `options`: further flags and their defaults, False for a switch. `prepare(case, asked)` loads everything and returns what
    measures. `show` prints what is in a file of results: after they are there, and with `--show FILE` alone."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=out)
    parser.add_argument("--cases", default=",".join(cases))
    parser.add_argument("--ahead", type=int, default=ahead, help="processes that load while one measures")
    if show is not None:
        parser.add_argument("--show", type=Path, help="only print what is in this file")
    for name, default in options.items():
        more: dict[str, Any] = {"action": "store_true"} if default is False else {"default": default}
        parser.add_argument(f"--{name}", **more, **({"type": int} if type(default) is int else {}))
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", help="further choices for memcfg's cases")
    asked = parser.parse_args()
    if asked.case is not None:
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        measured(lambda: prepare(asked.case, asked))
        return
    if show is not None and asked.show is not None:
        show(asked.show)
        return
    given = {f"--{name}": getattr(asked, name) for name in options}
    rest = [
        word for flag, value in given.items() if value for word in ((flag,) if value is True else (flag, str(value)))
    ]
    run_all(script, asked.cases.split(","), [*rest, *asked.overrides], Path(asked.out), timeout, asked.ahead)
    if show is not None:
        show(Path(asked.out))


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
