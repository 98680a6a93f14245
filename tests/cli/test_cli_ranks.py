"""Several processes as one program: started, watched and ended together, with one voice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memcfg import RunError
from memcfg.cli import Terminated
from memcfg.commands.launch import Told, together
from memcfg.commands.ranks import launched, may_speak, rank

PLACE = (
    "import os, sys, time; rank = int(os.environ['RANK']); open(f'{sys.argv[1]}/{rank}', 'w').write(str(os.getpid()));"
)


def started(folder: Path, code: str, count: int = 2) -> None:
    together([sys.executable, "-c", PLACE + code, str(folder)], count, os.environ)


def gone(folder: Path, count: int = 2) -> bool:
    """Whether the processes that left their numbers have ended."""
    pids = [int((folder / str(number)).read_text()) for number in range(count)]
    end = time.monotonic() + 10
    while time.monotonic() < end:
        alive = [
            pid
            for pid in pids
            if Path(f"/proc/{pid}/stat").exists()
            and Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        ]
        if not alive:
            return True
        time.sleep(0.05)
    return False


def test_all_end_well_and_know_their_places(tmp_path: Path) -> None:
    started(
        tmp_path,
        "print(os.environ['WORLD_SIZE'], os.environ['MASTER_PORT'], file=open(f'{sys.argv[1]}/said{rank}', 'w'))",
        3,
    )
    said = {(tmp_path / f"said{number}").read_text() for number in range(3)}
    assert len(said) == 1
    assert said.pop().startswith("3 ")


def test_one_that_fails_ends_all_with_its_code(tmp_path: Path) -> None:
    with pytest.raises(Told) as raised:
        started(tmp_path, "time.sleep(0.5 if rank else 600); sys.exit(2)")
    assert raised.value.exit_code == 2
    assert gone(tmp_path)


def test_one_that_is_killed_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError) as raised:
        started(tmp_path, "time.sleep(0.5); os.kill(os.getpid(), 9) if rank else time.sleep(600)")
    text = "process 1 of 2 was ended by signal 9 (out of memory on the host, most likely); all were stopped"
    assert str(raised.value) == text
    assert gone(tmp_path)


def test_one_that_is_killed_is_told_before_one_that_noticed(tmp_path: Path) -> None:
    code = """
other = f'{sys.argv[1]}/{1 - rank}'
while not os.path.exists(other): time.sleep(0.02)
if rank == 0:
    os.kill(os.getpid(), 9)
first = int(open(other).read() or 0)
while first and open(f'/proc/{first}/stat').read().rsplit(')', 1)[1].split()[0] != 'Z': time.sleep(0.02)
sys.exit(1)"""
    with pytest.raises(RunError) as raised:
        started(tmp_path, code)
    assert str(raised.value).startswith("process 0 of 2 was ended by signal 9")


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_signals_are_handed_on_and_all_may_finish(tmp_path: Path, number: int, error: type[BaseException]) -> None:
    code = f"""
import signal
def finish(*_):
    time.sleep(0.1 + 0.5 * rank)
    open(f'{{sys.argv[1]}}/saved{{rank}}', 'w').close()
    os._exit(128 + {int(number)})
signal.signal({int(number)}, finish)
if rank == 0:
    while not os.path.exists(f'{{sys.argv[1]}}/1'): time.sleep(0.05)
    time.sleep(0.3)
    os.kill(os.getppid(), {int(number)})
time.sleep(600)"""
    with pytest.raises(error):
        started(tmp_path, code)
    assert {file.name for file in tmp_path.glob("saved*")} == {"saved0", "saved1"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_children_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    parent = (
        "import os, sys; from memcfg.commands.launch import together;"
        f"together([sys.executable, '-c', {PLACE + 'time.sleep(600)'!r}, {str(tmp_path)!r}], 2, os.environ)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent])
    while not all((tmp_path / str(number)).exists() for number in range(2)):
        time.sleep(0.05)
    time.sleep(0.2)
    process.kill()
    process.wait()
    assert gone(tmp_path)


def test_the_first_process_speaks_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    error = RunError("no room")
    assert (rank(), launched(), may_speak(error), waited) == (0, False, True, [])
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert (rank(), may_speak(error), waited) == (0, True, [])
    assert may_speak(RuntimeError("Connection closed by peer [127.0.0.1]"))
    assert len(waited) == 1, "that another is gone is not the fault, but its consequence"
    monkeypatch.setenv("RANK", "1")
    assert (rank(), may_speak(error)) == (1, True)
    assert len(waited) == 2
    monkeypatch.setattr(time, "sleep", lambda seconds: (_ for _ in ()).throw(Terminated()))
    assert not may_speak(error), "the launcher ended it: somebody has spoken"


SMALL = (
    "model.hidden=32",
    "run.steps=2",
    "run.log_steps=1",
    "data=jsonl",
    "data.eval_rows=1",
    "truncation.max_length=32",
)


def rows(folder: Path) -> str:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": f"row number {i} of a few"}) + "\n" for i in range(6)))
    return f"data.path={file}"


@pytest.mark.torch
@pytest.mark.slow
def test_the_short_form_trains_once_and_tells_once(warm_python: str, tmp_path: Path) -> None:
    command = [
        warm_python,
        "-m",
        "memcfg",
        *SMALL,
        rows(tmp_path),
        "distributed=fsdp2",
        "distributed.processes=2",
        "run.dir=here",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 2 steps") == 1
    assert done.stderr.count("checking the first batch") == 1
    here = tmp_path / "here"
    assert json.loads((here / "effective.json").read_text())["distributed.strategy"]["effective"] == "fsdp2"
    assert len((here / "metrics.jsonl").read_text().splitlines()) == 3
    assert (here / "model" / "model.safetensors").is_file()
    assert json.loads((here / "run.json").read_text())["command"] == ["python", "-m", "memcfg", *command[3:]]
    assert json.loads((here / "report.json").read_text())["steps"] == 2


SAYS_WHO = "import os, sys; print(os.getpid(), flush=True); from memcfg.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.torch
@pytest.mark.slow
def test_where_the_first_process_is_killed_one_message_is_seen_and_the_report_is_made(
    warm_python: str, tmp_path: Path
) -> None:
    endless = ["run.steps=100000" if word.startswith("run.steps=") else word for word in SMALL]
    words = [*endless, rows(tmp_path), "distributed=ddp", "distributed.processes=2", "run.dir=here", "-q"]
    launcher = subprocess.Popen(
        [warm_python, "-c", SAYS_WHO, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert launcher.stdout is not None
    pid = int(launcher.stdout.readline())
    metrics, end = tmp_path / "here" / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 2) and time.monotonic() < end:
        time.sleep(0.05)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    out, err = launcher.communicate(timeout=120)
    text = "process 0 of 2 was ended by signal 9 (out of memory on the host, most\n  likely); all were stopped"
    assert (launcher.returncode, out, err) == (1, "", f"error: {text}\n")
    said = json.loads((tmp_path / "here" / "run.json").read_text())
    assert (said["status"], said["error"]) == ("failed", f"error: {text}")
    assert "was ended by signal 9" in (tmp_path / "here" / "report.html").read_text()


@pytest.mark.torch
@pytest.mark.slow
def test_processes_with_different_plans_stop_with_the_difference(warm_python: str, tmp_path: Path) -> None:
    from memcfg.commands.launch import _meeting_place

    shared = os.environ | _meeting_place() | {"CUDA_VISIBLE_DEVICES": "", "WORLD_SIZE": "2"}
    command = [warm_python, "-m", "memcfg", *SMALL, rows(tmp_path), "distributed=ddp", "--quiet"]
    both = [
        subprocess.Popen(
            [*command, f"run.seed={number}"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=shared | {"RANK": str(number), "LOCAL_RANK": str(number)},
        )
        for number in range(2)
    ]  # fmt: skip
    first = both[0].communicate(timeout=300)
    both[1].terminate()  # as a launcher does once one has failed
    second = both[1].communicate(timeout=300)
    assert both[0].returncode == 1
    assert both[1].returncode != 0
    text = (
        "error: `run.seed`: process 0 has `0` here, and process 1 has `1`: all processes\n  must be given the same plan"
    )
    assert text in first[1].replace("\n  ", "\n  ")
    assert "error" not in second[1] + second[0] + first[0]
    assert not (tmp_path / "runs").exists()
