"""Another process of the run is gone: who says so, and who writes down how the run ended."""

import json
import os
import signal

import pytest

from memcfg.commands import survivors
from memcfg.commands.launch import Told
from memcfg.commands.ranks import may_speak
from memcfg.engine.joining import Group, relying
from memcfg.errors import Lost, RunError
from memcfg.report.console import Terminal
from memcfg.signals import unhurried

RESET = (
    "[pair.cc:537] Read error [127.0.0.1]:1428: Connection reset by peer. This is typically caused by a remote worker"
)
RUNNING = {"status": "running", "command": ["memcfg"]}


@pytest.fixture
def second(monkeypatch):
    """This process is the second of two, and does not wait for the first."""
    monkeypatch.setattr(survivors, "PATIENCE", -1.0)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)


def journal(folder, said):
    (folder / "run.json").write_text(json.dumps(said))


def test_what_torch_says_of_a_process_that_is_gone_is_one_clear_error():
    with pytest.raises(Lost) as raised, relying(Group(0, 2)):
        raise RuntimeError(RESET)
    (problem,) = raised.value.problems
    assert problem.text == "another process of this run is gone"
    assert problem.fix == "it has said why, or it was killed: the host was out of memory, most likely"
    assert str(raised.value.__cause__) == RESET


@pytest.mark.parametrize(("group", "error"), [(Group(), RuntimeError(RESET)), (Group(0, 2), RuntimeError("a shape"))])
def test_other_errors_stay_what_they_are(group, error):
    with pytest.raises(RuntimeError) as raised, relying(group):
        raise error
    assert raised.value is error


def test_who_is_left_writes_it_down_and_speaks(second, tmp_path):
    journal(tmp_path, RUNNING)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    with pytest.raises(Lost) as raised, survivors.standing_by(tmp_path, Terminal(quiet=True)):
        raise Lost("another process of this run is gone")
    said = json.loads((tmp_path / "run.json").read_text())
    assert (said["status"], said["error"]) == ("failed", "error: another process of this run is gone")
    assert "2.5" in (tmp_path / "report.html").read_text()
    assert may_speak(raised.value)


@pytest.mark.parametrize("said", [{"status": "failed", "error": "error: no room"}, None])
def test_where_the_first_has_written_it_or_there_is_no_run_the_others_are_silent(second, tmp_path, said):
    if said is not None:
        journal(tmp_path, said)
    with pytest.raises(Lost) as raised, survivors.standing_by(tmp_path, Terminal(quiet=True)):
        raise Lost("another process of this run is gone")
    assert not may_speak(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ([] if said is None else ["run.json"])


def test_where_memcfg_is_the_launcher_it_speaks_and_the_processes_do_not(second, monkeypatch):
    error = Lost("another process of this run is gone")
    error.stands_in = True
    assert may_speak(error)
    monkeypatch.setenv("MEMCFG_TYPED", "[]")
    assert not may_speak(error)


@pytest.mark.parametrize(
    ("before", "error", "after"),
    [
        (RUNNING, RunError("process 0 of 2 was ended by signal 9"), "error: process 0 of 2 was ended by signal 9"),
        (
            {"status": "failed", "error": "error: another process of this run is gone"},
            RunError("process 1 of 2 was ended by signal 9"),
            "error: process 1 of 2 was ended by signal 9",
        ),
        (
            {"status": "failed", "error": "error: the loss of step 3 is nan"},
            Told("process 0 of 2 ended with exit code 1", 1),
            "error: the loss of step 3 is nan",
        ),
    ],
)
def test_the_launcher_writes_down_what_it_knows_better(tmp_path, before, error, after):
    journal(tmp_path, before)
    survivors.close(tmp_path, error, Terminal(quiet=True))
    assert json.loads((tmp_path / "run.json").read_text())["error"] == after


def test_a_signal_to_end_waits_for_what_is_not_done_again():
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with unhurried():
            os.kill(os.getpid(), signal.SIGTERM)
            assert came == []
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
