"""Throughput over training alone, and one line for each logged step."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from memcfg import RunError
from memcfg.engine import metrics
from memcfg.engine.metrics import Meter, MetricsFile
from memcfg.engine.shown import CompletionsFile

pytestmark = pytest.mark.torch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still unless moved: `clock[0] += 2`."""
    now = [100.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    return now


def test_only_the_time_between_start_and_stop_counts(clock: list[float]) -> None:
    meter = Meter()
    meter.start()
    meter.add(30)
    clock[0] += 2
    meter.stop()
    clock[0] += 50  # an evaluation
    meter.start()
    meter.add(10)
    clock[0] += 2
    assert meter.read() == 10.0
    assert (meter.tokens, meter.seconds) == (40, 4.0)


def test_windows_add_up_and_the_clock_runs_on(clock: list[float]) -> None:
    meter = Meter()
    meter.start()
    for tokens, seconds in ((10, 1), (90, 4)):
        meter.add(tokens)
        clock[0] += seconds
        assert meter.read() == tokens / seconds
    assert meter.rate() == 20.0


def test_what_is_discarded_is_in_no_total(clock: list[float]) -> None:
    meter = Meter()
    meter.start()
    meter.add(50)
    clock[0] += 5
    assert meter.discard() == 10.0
    clock[0] += 5
    assert (meter.read(), meter.rate()) == (0.0, 0.0)


def test_stopping_twice_is_stopping_once(clock: list[float]) -> None:
    meter = Meter()
    meter.stop()
    meter.start()
    clock[0] += 1
    meter.stop()
    clock[0] += 1
    meter.stop()
    meter.add(3)
    assert meter.read() == 3.0


@pytest.mark.parametrize(("empty", "share"), [((False, False), 1.0), ((True, False), 2.0), ((True, True), math.nan)])
def test_empty_steps_are_left_out_of_the_mean(empty: tuple[bool, ...], share: float) -> None:
    meter = Meter()
    for flag in empty:
        meter.add(1, empty=flag)
    assert meter.share_counted() == pytest.approx(share, nan_ok=True)
    meter.read()
    meter.add(1)
    assert meter.share_counted() == 1.0, "a new window starts anew"


def test_what_is_noted_for_one_step_is_one_line(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl")
    file.note(1, {"loss": 2.0})
    file.note(1, {"eval_loss": 3.0})
    file.note(2, {"loss": 1.5})
    assert file.flush() == {"step": 2, "loss": 1.5}
    assert file.flush() == {}
    written = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert written == [{"step": 1, "loss": 2.0, "eval_loss": 3.0}, {"step": 2, "loss": 1.5}]
    assert (file.first("loss"), file.last("loss"), file.last("eval_loss"), file.first("x")) == (2.0, 1.5, 3.0, None)


def test_every_line_is_json_that_any_reader_takes(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl")
    file.note(1, {"loss": math.nan, "grad_norm": math.inf})
    file.flush()
    assert file.path.read_text() == '{"step": 1, "loss": null, "grad_norm": null}\n'


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_run_error() -> None:
    file = MetricsFile(Path("/dev/full"))
    file.note(1, {"loss": 1.0})
    with pytest.raises(RunError, match=r"`run.dir`: cannot write `/dev/full`: no space left on device"):
        file.flush()


def test_completions_that_are_taken_again_are_not_there_twice(tmp_path: Path) -> None:
    file = tmp_path / "completions.jsonl"
    shown = CompletionsFile(file)
    for step in (1, 2, 3):
        shown.note(step, [{"completion": "grün"}])
    file.open("a", encoding="utf-8").write('{"step": 4, "comp')  # killed while it wrote
    again = CompletionsFile(file)
    again.go_on(2)
    again.note(3, [{"completion": "blau"}])
    assert [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] == [
        {"step": 1, "completion": "grün"},
        {"step": 2, "completion": "grün"},
        {"step": 3, "completion": "blau"},
    ]
    CompletionsFile(None).go_on(2)
    CompletionsFile(tmp_path / "none.jsonl").go_on(2)
    assert not (tmp_path / "none.jsonl").exists()
