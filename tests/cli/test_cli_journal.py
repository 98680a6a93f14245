"""`run.json`: by which command a run was started, and how it ended."""

import json

import pytest

from memcfg import Decision, Plan
from memcfg.cli import Terminated
from memcfg.commands.journal import command, journal
from memcfg.errors import Lost, Problem, RunError
from memcfg.report.console import Terminal

PLAN = Plan({"data.token": Decision("hunter2", "you", origin="command line", requested="hunter2", secret=True)})


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Run something under a journal; returns `run.json` and what is in the folder."""
    monkeypatch.setattr("sys.argv", ["/x/memcfg/__main__.py", "packing=bfd", "data.token=hunter2"])

    def run(act):
        try:
            with journal(PLAN, tmp_path, Terminal(quiet=True)):
                (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
                act()
        except BaseException as error:
            caught = error
        else:
            caught = None
        return caught, json.loads((tmp_path / "run.json").read_text()), {path.name for path in tmp_path.iterdir()}

    return run


def fail():
    raise RunError(Problem("the loss of step 3 is nan", key="run.learning_rate"))


def interrupt():
    raise KeyboardInterrupt


def test_a_run_that_completes(told):
    caught, said, files = told(lambda: None)
    assert caught is None
    assert said["command"] == ["python", "-m", "memcfg", "packing=bfd", "data.token=***"]
    assert (said["status"], "ended" in said) == ("completed", True)
    assert "torch" in said["versions"]
    assert files == {"run.json", "metrics.jsonl", "report.html"}


@pytest.mark.parametrize(
    ("act", "status", "error"),
    [(fail, "failed", "error: `run.learning_rate`: the loss of step 3 is nan"), (interrupt, "interrupted", None)],
)
def test_a_run_that_does_not_leaves_a_page_too(told, act, status, error):
    caught, said, files = told(act)
    assert caught is not None
    assert (said["status"], said.get("error")) == (status, error)
    assert "report.html" in files


def test_the_command_is_told_as_it_was_typed():
    assert command(["/usr/bin/memcfg", "run", "x"], {}) == ["memcfg", "run", "x"]
    assert command(["a", "k=s3cret", "s3"], {"V": "s3cret"}) == ["a", "k=***", "s3"]


def test_a_process_that_memcfg_started_tells_what_the_user_typed(told, monkeypatch):
    monkeypatch.setenv("MEMCFG_TYPED", '["memcfg", "distributed.processes=2"]')
    assert told(lambda: None)[1]["command"] == ["memcfg", "distributed.processes=2"]


def test_a_launcher_that_interrupts_does_not_hide_why_the_run_ended(told):
    def ended():
        try:
            raise Lost("another process of this run is gone")
        except Lost:
            raise Terminated from None

    caught, said, _ = told(ended)
    assert isinstance(caught, Terminated)
    assert (said["status"], said["error"]) == ("failed", "error: another process of this run is gone")


def test_a_run_that_is_refused_to_go_on_leaves_what_was_said_before(told, tmp_path):
    told(lambda: None)
    page = (tmp_path / "report.html").read_bytes()
    caught, said, _ = told(fail)
    assert caught is not None
    assert said["status"] == "completed"
    assert (tmp_path / "report.html").read_bytes() == page


def test_a_page_that_cannot_be_made_is_a_warning(tmp_path, monkeypatch, capsys):
    """A bug in the page, or a full disk, does not undo a night of training."""
    monkeypatch.setattr("memcfg.commands.journal.write_page", lambda folder: 1 / 0)
    with journal(PLAN, tmp_path, Terminal()):
        pass
    assert capsys.readouterr().err == "warning: no `report.html`: division by zero\n"
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "completed"
