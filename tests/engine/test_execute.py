"""A whole run: what its folder holds, that it repeats, and what is left when it fails."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from memcfg import DataError, Decision, Plan, PluginError, RunError
from memcfg.engine import course, execute, saving
from memcfg.engine.build import NEEDED
from memcfg.engine.evidence import Effective
from memcfg.engine.execute import train

pytestmark = pytest.mark.torch


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def contents(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def raising(error: BaseException) -> Any:
    def hook(*_: Any, **__: Any) -> Any:
        raise error

    return hook


# ------------------------------------------------------------------------------------------------ what a run leaves


def test_a_run_folder_says_what_happened(bench: Any, tmp_path: Path) -> None:
    hooks = bench.Hooks(held_out=bench.rows(seed=5))
    report = train(bench.plan(run_steps=5, run_eval_steps=4), hooks, tmp_path / "run")
    folder = tmp_path / "run"
    assert contents(folder) == [
        "batches.json",
        "effective.json",
        "ledger.json",
        "memory.json",
        "metrics.jsonl",
        "model",
        "resolved.yaml",
    ]
    found = lines(folder)
    assert [line["step"] for line in found] == [0, 1, 2, 4, 5]
    assert all({"step", "loss", "tokens_per_second"} <= set(line) for line in found)
    assert [line["step"] for line in found if "eval_loss" in line] == [0, 4, 5]
    assert all({"grad_norm", "learning_rate", "epoch"} <= set(line) for line in found[1:])
    assert found[0]["loss"] == pytest.approx(found[1]["loss"]), "both are the loss of the first step's rows"
    ledger = json.loads((folder / "ledger.json").read_text())
    assert (ledger["tokens_in"], ledger["rows_in"], ledger["eval"]["rows_in"]) == (40, 6, 6)
    assert ledger["tokens_seen"] + ledger["tokens_padded"] > ledger["tokens_seen"] > 0
    memory = json.loads((folder / "memory.json").read_text())
    assert memory["measured"]["peak_bytes"] > 2**20
    assert memory["predicted"] is None
    effective = json.loads((folder / "effective.json").read_text())
    assert effective["run.learning_rate"] == {
        "resolved": 1e-2, "effective": 1e-2, "evidence": "1 parameter group(s) of the optimizer",
    }  # fmt: skip
    assert report.to_dict().keys() >= {
        "loss_first", "loss_last", "eval_loss_first", "eval_loss_last", "tokens_per_second", "peak_bytes", "ledger",
        "run_dir", "model_dir", "seconds",
    }  # fmt: skip
    assert report.loss_first == found[0]["loss"]
    assert report.loss_last == found[-1]["loss"]
    assert (report.eval_loss_first, report.eval_loss_last) == (found[0]["eval_loss"], found[-1]["eval_loss"])
    json.dumps(report.to_dict())


def test_training_lowers_the_loss_of_what_it_trains_on(bench: Any, tmp_path: Path) -> None:
    rows = bench.rows()
    plan = bench.plan(run_steps=60, run_batch_size=6, run_learning_rate=2e-2)
    report = train(plan, bench.Hooks(rows, held_out=rows), tmp_path / "run")
    assert report.eval_loss_last < 0.5 * report.eval_loss_first


def test_the_final_model_loads_and_is_the_trained_one(bench: Any, tmp_path: Path) -> None:
    rows = bench.rows()
    report = train(bench.plan(run_steps=3), bench.Hooks(held_out=rows), tmp_path / "run")
    loaded = AutoModelForCausalLM.from_pretrained(report.model_dir)
    assert AutoTokenizer.from_pretrained(report.model_dir).eos_token == "w1"
    assert loaded.config.use_cache is True, "training switched it off; the model that is handed out has it on"
    batch = bench.padded(bench.collate(rows.to_list()))
    logits = loaded(**batch.inputs, use_cache=False).logits[:, :-1].flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, batch.labels[:, 1:].flatten(), ignore_index=-100)
    assert float(loss.detach()) == pytest.approx(report.eval_loss_last, rel=1e-5)
    assert not list(Path(report.model_dir).glob("*.bin")), "no pickles"


def test_a_run_repeats_exactly(bench: Any, tmp_path: Path) -> None:
    def with_dropout(plan: Plan, device: str) -> Any:
        return bench.model(attention_dropout=0.2)

    def once(name: str) -> list[Any]:
        torch.rand(3)  # whatever was drawn before must not matter
        hooks = bench.Hooks(held_out=bench.rows(seed=5), load_model=with_dropout)
        train(bench.plan(run_log_steps=1), hooks, tmp_path / name)
        return [(line["loss"], line.get("eval_loss"), line.get("grad_norm")) for line in lines(tmp_path / name)]

    assert once("a") == once("b")


def test_another_seed_is_another_run(bench: Any, tmp_path: Path) -> None:
    train(bench.plan(), bench.Hooks(), tmp_path / "a")
    train(bench.plan(run_seed=1), bench.Hooks(), tmp_path / "b")
    assert lines(tmp_path / "a")[-1]["loss"] != lines(tmp_path / "b")[-1]["loss"]


def test_checkpoints_appear_whole_with_the_place_in_the_data(bench: Any, tmp_path: Path) -> None:
    train(bench.plan(run_steps=4, run_save_steps=2), bench.Hooks(), tmp_path / "run")
    assert [n for n in contents(tmp_path / "run") if n.startswith("checkpoint")] == ["checkpoint-2", "checkpoint-4"]
    assert not list((tmp_path / "run").glob(".*"))
    state = json.loads((tmp_path / "run" / "checkpoint-2" / "loader.json").read_text())
    assert state == {"epoch": 0, "position": 2, "seed": 0, "rows": 6}
    AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "checkpoint-2")


def test_the_reporter_hears_every_step(bench: Any, tmp_path: Path) -> None:
    told = bench.Told()
    train(bench.plan(), bench.Hooks(), tmp_path / "run", reporter=told)
    steps = [entry for entry in told.said if entry[0] not in ("stage", "note")]
    assert [entry[:2] for entry in steps] == [("begin", 4), *(("advance", n) for n in range(5)), ("end",)]
    assert [entry[2] for entry in steps if entry[0] == "advance" and entry[2]] == lines(tmp_path / "run")


def test_data_is_prepared_before_the_model_is_loaded(bench: Any, tmp_path: Path) -> None:
    hooks = bench.Hooks(held_out=bench.rows())
    train(bench.plan(), hooks, tmp_path / "run")
    order = [hooks.calls.index(c) for c in ("prepare_dataset:train", "prepare_dataset:eval", "layout", "load_model")]
    assert order == sorted(order)
    later = ["load_model", "attention", "patch_model", "head", "optimizer", "step_context", "evidence"]
    assert [c for c in hooks.calls if c in later] == later


# ------------------------------------------------------------------------------------------------ what stops a run


@pytest.mark.parametrize(
    ("train_rows", "text"),
    [
        ("none", "no training rows"),
        ("empty", "no training row is left of 0"),
        ("stream", "evaluation rows must all be there"),
    ],
)
def test_unusable_data_is_found_before_the_model_is_loaded(
    bench: Any, tmp_path: Path, train_rows: str, text: str
) -> None:
    rows = {"none": None, "empty": bench.rows(()), "stream": iter([])}[train_rows]
    hooks = bench.Hooks(held_out=bench.rows(), load_dataset=lambda split, **_: rows if split == "train" else None)
    if train_rows != "none":
        hooks = bench.Hooks(load_dataset=lambda split, **_: rows, prepare_dataset=lambda dataset, **_: dataset)
    with pytest.raises(DataError, match=text):
        train(bench.plan(), hooks, tmp_path / "run")
    assert "load_model" not in hooks.calls
    assert contents(tmp_path) == []


@pytest.mark.parametrize("hook", NEEDED)
def test_a_value_without_implementation_is_refused_before_anything_is_done(
    bench: Any, tmp_path: Path, hook: str
) -> None:
    missing = PluginError(f"`trainer.name=dpo` is provided by plugin `dpo`, which implements no `memcfg_{hook}`", "dpo")
    hooks = bench.Hooks(**{hook: missing})
    with pytest.raises(PluginError, match="implements no"):
        train(bench.plan(), hooks, tmp_path / "run")
    assert hooks.calls == []
    assert contents(tmp_path) == []


def test_assumed_facts_are_refused(bench: Any, tmp_path: Path) -> None:
    plan = Plan(bench.plan().decisions, assumed=("device.type",))
    with pytest.raises(RunError, match=r"`device\.type` are assumed"):
        train(plan, bench.Hooks(), tmp_path / "run")
    assert contents(tmp_path) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_plan_for_a_gpu_is_refused_without_one(bench: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"device\.type"):
        train(bench.plan(device_type="cuda"), bench.Hooks(), tmp_path / "run")


def test_a_failed_canary_leaves_nothing(bench: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no target"):
        train(bench.plan(), bench.Hooks(bench.rows(masked=range(6))), tmp_path / "run")
    assert contents(tmp_path) == []


def test_a_technique_that_did_not_happen_stops_the_run_after_its_first_step(bench: Any, tmp_path: Path) -> None:
    def evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
        return [*found, Effective("checkpointing.mode", "none", "0 of 2 layers computed again")]

    plan = Plan({**bench.plan().decisions, "checkpointing.mode": Decision("full", "default")})
    with pytest.raises(RunError, match=r"`checkpointing.mode`: the plan says full, the run did none \(0 of 2 layers"):
        train(plan, bench.Hooks(evidence=evidence), tmp_path / "run")
    effective = json.loads((tmp_path / "run" / "effective.json").read_text())
    assert effective["checkpointing.mode"]["effective"] == "none"
    assert "model" not in contents(tmp_path / "run")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run_at_its_step(bench: Any, tmp_path: Path, bad: float) -> None:
    class Diverging(bench.Objective):  # type: ignore[name-defined, misc]
        steps = 0

        def loss_sum(self, model: Any, batch: Any) -> torch.Tensor:
            self.steps += model.training and torch.is_grad_enabled()
            return super().loss_sum(model, batch) * (bad if self.steps == 3 else 1.0)

    hooks = bench.Hooks(objective=lambda plan: Diverging())
    with pytest.raises(RunError, match=r"`run.learning_rate`: the loss of step 3 is (nan|inf)"):
        train(bench.plan(run_log_steps=1, run_save_steps=1), hooks, tmp_path / "run")
    assert [line["step"] for line in lines(tmp_path / "run")] == [0, 1, 2]
    assert all(line["loss"] > 1 for line in lines(tmp_path / "run"))
    assert "checkpoint-3" not in contents(tmp_path / "run")
    assert "model" not in contents(tmp_path / "run")


def test_ctrl_c_keeps_what_was_measured_and_passes_through(bench: Any, tmp_path: Path) -> None:
    class Interrupted(bench.Objective):  # type: ignore[name-defined, misc]
        steps = 0

        def loss_sum(self, model: Any, batch: Any) -> torch.Tensor:
            self.steps += model.training and torch.is_grad_enabled()
            if self.steps == 3:
                raise KeyboardInterrupt
            return super().loss_sum(model, batch)

    told = bench.Told()
    hooks = bench.Hooks(objective=lambda plan: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        train(bench.plan(run_log_steps=1), hooks, tmp_path / "run", reporter=told)
    assert [line["step"] for line in lines(tmp_path / "run")] == [0, 1, 2]
    assert contents(tmp_path / "run") == [
        "batches.json",
        "effective.json",
        "ledger.json",
        "memory.json",
        "metrics.jsonl",
        "resolved.yaml",
    ]
    assert told.said[-1] == ("end",)


def test_ctrl_c_while_saving_leaves_no_half_model(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, folder: str, *_: Any, **__: Any) -> None:
        Path(folder).mkdir(parents=True)
        (Path(folder) / "config.json").write_text("{")
        raise KeyboardInterrupt

    monkeypatch.setattr(execute.EngineTrainer, "save_model", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(bench.plan(), bench.Hooks(), tmp_path / "run")
    assert contents(tmp_path / "run") == [
        "batches.json",
        "effective.json",
        "ledger.json",
        "memory.json",
        "metrics.jsonl",
        "resolved.yaml",
    ]


# ------------------------------------------------------------------------------------------------ the output folder


def test_a_folder_below_a_file_cannot_be_used(bench: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    hooks = bench.Hooks()
    with pytest.raises(RunError) as raised:
        train(bench.plan(), hooks, tmp_path / "file" / "run")
    assert raised.value.problems[0].key == "run.dir"
    assert hooks.calls == [], "the folder is tried before anything is loaded"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_cannot_be_used(bench: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="permission denied"):
        train(bench.plan(), bench.Hooks(), tmp_path / "run")


def test_a_full_disk_is_found_before_anything_is_loaded(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving.os, "fsync", raising(OSError(errno.ENOSPC, "No space left on device")))
    hooks = bench.Hooks()
    with pytest.raises(RunError, match=r"`run.dir`: cannot write .*: no space left on device"):
        train(bench.plan(), hooks, tmp_path / "run")
    assert hooks.calls == []
    assert contents(tmp_path) == []


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("error", [FULL, RuntimeError("[enforce fail] PytorchStreamWriter failed writing file data/3")])
def test_a_disk_that_fills_while_saving_is_a_run_error(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(execute.EngineTrainer, "_save_optimizer_and_scheduler", raising(error))
    with pytest.raises(RunError, match=r"`run.dir`: cannot write .*checkpoint-2"):
        train(bench.plan(run_save_steps=2), bench.Hooks(), tmp_path / "run")
    assert not [n for n in contents(tmp_path / "run") if n.startswith(("checkpoint", "."))]


def test_a_fault_that_is_not_the_disks_is_not_called_so(bench: Any, tmp_path: Path) -> None:
    def write() -> None:
        with saving.whole(tmp_path / "model") as partial:
            partial.mkdir(parents=True)
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write()
    assert contents(tmp_path) == []


def test_a_folder_that_holds_a_run_is_not_written_over(bench: Any, tmp_path: Path) -> None:
    train(bench.plan(), bench.Hooks(), tmp_path / "run")
    before = lines(tmp_path / "run")
    with pytest.raises(RunError, match="already holds a run"):
        train(bench.plan(), bench.Hooks(), tmp_path / "run")
    assert lines(tmp_path / "run") == before


def test_a_folder_that_was_there_stays_when_a_run_fails(bench: Any, tmp_path: Path) -> None:
    (tmp_path / "resolved.yaml").write_text("plan")
    with pytest.raises(DataError):
        train(bench.plan(), bench.Hooks(load_dataset=lambda split, **_: None), tmp_path)
    assert contents(tmp_path) == ["resolved.yaml"]


def test_a_course_that_never_began_says_no_end(bench: Any, tmp_path: Path) -> None:
    told = bench.Told()
    course.Course(tmp_path, told).close()
    assert told.said == []
