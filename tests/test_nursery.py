"""Programs that are forked from a Python that has loaded torch are told from others by nothing that a test looks at."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch


def test_a_forked_program_has_its_own_everything(warm_python: str, tmp_path: Path) -> None:
    code = (
        "import os, sys; print(sys.argv, os.getcwd(), os.environ['WORD'], sys.executable, 'torch' in sys.modules);"
        "print(sys.stdin.read(), file=sys.stderr); sys.exit(7)"
    )
    done = subprocess.run(
        [warm_python, "-c", code, "a b"],
        cwd=tmp_path,
        env={"WORD": "said"},
        input="read",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (7, "read\n")
    assert done.stdout == f"['-c', 'a b'] {tmp_path} said {warm_python} True\n"


def test_a_traceback_and_signals_come_through(warm_python: str) -> None:
    failed = subprocess.run([warm_python, "-c", "1 / 0"], capture_output=True, text=True)
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")
    waits = (
        "import time\ntry:\n    print('on', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n    print('off')"
    )
    for number, code, rest in ((signal.SIGINT, 0, "off\n"), (signal.SIGTERM, -signal.SIGTERM, "")):
        process = subprocess.Popen([warm_python, "-c", waits], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.send_signal(number)
        assert (process.stdout.read(), process.wait()) == (rest, code)


def test_a_program_goes_with_who_asked_for_it(warm_python: str) -> None:
    process = subprocess.Popen(
        [warm_python, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    program = int(process.stdout.readline())
    process.kill()
    assert process.stdout.read() == ""
    while os.path.exists(f"/proc/{program}/stat"):
        time.sleep(0.01)
