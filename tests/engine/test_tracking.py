"""Trackers get the metrics through Transformers' integrations, and the plan as the run's configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.integrations import integration_utils

from memcfg import Decision, Plan, RequestError, RunError
from memcfg.engine import tracking
from memcfg.engine.execute import train

pytestmark = pytest.mark.torch


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][1:]


def test_tensorboard_has_the_metrics_and_the_plan(bench: Any, tmp_path: Path) -> None:
    """Written by one run up to step 4, and by another that goes on from step 2 with what it does there."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, asked = tmp_path / "run", {"run_log_steps": 1, "run_save_steps": 2, "run_report_to": ["tensorboard"]}
    train(bench.plan(run_steps=3, **asked), bench.Hooks(), folder)
    for name in ("checkpoint-3", "model"):
        (folder / name).rename(tmp_path / name)
    train(bench.plan(run_steps=5, run_resume="auto", **asked), bench.Hooks(), folder)
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    losses = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert losses == [(line["step"], pytest.approx(line["loss"])) for line in logged(folder)]
    (text, *_) = (event.tensor_proto.string_val[0].decode() for event in events.Tensors("args/text_summary"))
    assert json.loads(text)["run.learning_rate"] == 1e-2
    assert json.loads(text)["loss.type"] == "nll"


class Configuration(dict[str, Any]):
    def update(self, values: Any, **_: Any) -> None:  # type: ignore[override]
        super().update(values)


class Recorder:
    """Stands in for the package of a tracker: what Transformers' callback does with it is recorded."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.run = None
        self.config = Configuration()
        self.context_vars = SimpleNamespace(current_space_id=SimpleNamespace(get=lambda: None))
        self.__version__ = "99.0"

    def init(self, **about: Any) -> None:
        self.calls.append(("init", about))
        self.run = SimpleNamespace(_label=lambda **_: None, id="1", name="run", summary={})

    def log(self, values: Any, **_: Any) -> None:
        self.calls.append(("log", values))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_other_trackers_are_told_the_plan_and_the_metrics(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    recorder: Any = Recorder()
    monkeypatch.setitem(sys.modules, name, recorder)
    monkeypatch.setattr(integration_utils, f"is_{name}_available", lambda: True)
    monkeypatch.setattr(tracking, "installed", lambda package: True)
    if name == "wandb":
        error = SimpleNamespace(ConfigError=KeyError)
        for part in ("wandb.sdk", "wandb.sdk.lib", "wandb.sdk.lib.config_util"):
            monkeypatch.setitem(sys.modules, part, error)
    train(bench.plan(run_log_steps=2, run_report_to=name), bench.Hooks(), tmp_path / "run")
    assert recorder.config["run.learning_rate"] == 1e-2
    assert next(about for call, about in recorder.calls if call == "init")["name"] == "run"
    told = [values["train/loss"] for call, values in recorder.calls if call == "log" and "train/loss" in values]
    assert told == [line["loss"] for line in logged(tmp_path / "run")]


def test_a_missing_package_is_found_before_anything_is_loaded(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "installed", lambda package: False)
    hooks = bench.Hooks()
    with pytest.raises(RunError) as raised:
        train(bench.plan(run_report_to=["wandb"]), hooks, tmp_path / "run")
    assert str(raised.value) == "`run.report_to`: the wandb package is not installed\n  pip install wandb"
    with pytest.raises(RequestError) as unknown:
        train(bench.plan(run_report_to=["weights"]), hooks, tmp_path / "run")
    assert str(unknown.value) == "`run.report_to`: `weights` is not one of `tensorboard`, `wandb`, `trackio`"
    assert hooks.calls == []
    assert not (tmp_path / "run").exists()


def test_secrets_are_masked(bench: Any) -> None:
    plan = Plan({**bench.plan().decisions, "data.token": Decision("hf_sesame", "you", secret=True)})
    found = tracking.configuration(plan)
    assert found["data.token"] == "***"
