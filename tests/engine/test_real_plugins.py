"""The engine over memcfg's own plugins: one step is one step however it is cut, and a run is what its plan says."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import memcfg
from memcfg import DataError, Plan, PluginError
from memcfg.engine.execute import train
from memcfg.registry import load
from memcfg.testing import Update, assert_same_training, first_update

pytestmark = pytest.mark.torch

TINY = ["model.dtype=float32", "model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.layers=2"]
TEXTS = [
    "Return the sum of two numbers.", "x = 1", "def add(a, b):\n    return a + b", "A short line of text.",
    "Open the file, read every line, close the file again and return the lines that were read.", "import os",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Six documents of different lengths, as a JSON Lines file."""
    file = tmp_path_factory.mktemp("data") / "data.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return ["data=jsonl", f"data.path={file}", *TINY]


def plan_of(*overrides: str) -> Plan:
    return memcfg.resolve(list(overrides))


@cache
def whole_step() -> Update:
    """The step of all rows at once, padded, over whole logits."""
    return first_update([*TINY, "run.batch_size=6", "loss=nll"], texts=TEXTS)


FORMS = {
    "padded": [],
    "padded to 8": ["padding=multiple", "padding.multiple_of=8"],
    "padding-free": ["padding_free=on"],
    "padding-free, eager": ["padding_free=on", "attention=eager"],
    "packed, loose": ["packing=bfd_split", "truncation.max_length=512"],
    "packed, tight": ["packing=bfd", "truncation.max_length=64"],
    "plain loss": ["loss=nll"],
    "kept activations": ["checkpointing=none"],
}


@pytest.mark.parametrize("split", [(6, 1), (1, 6), (2, 3), (3, 2)], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_one_step_is_one_step_however_its_rows_are_cut_and_laid_out(form: str, split: tuple[int, int]) -> None:
    batch, accumulation = split
    asked = [*TINY, *FORMS[form], f"run.batch_size={batch}", f"run.accumulation={accumulation}"]
    assert_same_training(asked, whole_step(), texts=TEXTS)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("form", [["packing=bfd_split"], ["packing=wrapped"], ["padding_free=on"], []], ids=str)
def test_a_run_does_what_its_plan_says(data: list[str], tmp_path: Path, form: list[str], attention: str) -> None:
    plan = plan_of(
        *data, *form, f"attention={attention}", "truncation.max_length=64", "run.steps=3", "run.log_steps=1",
        "data.eval_rows=1",
    )  # fmt: skip
    report = train(plan, load().hooks(plan), tmp_path / "run")
    effective = json.loads((tmp_path / "run" / "effective.json").read_text())
    assert set(effective) >= {
        "attention.implementation", "batch.layout", "checkpointing.mode", "checkpointing.reentrant", "device.type",
        "loss.type", "loss.kernel", "model.dtype", "optimizer.name", "run.learning_rate", "trainer.name",
    }  # fmt: skip
    assert all(value["resolved"] == value["effective"] for value in effective.values())
    shares = plan["batch.layout"] != "padded"
    assert ("padding_free.enabled" in effective) is shares
    assert ("packing.strategy" in effective) is (plan["packing.strategy"] != "none")
    assert ("do not see each other" in report.canaries["isolation"]) is shares
    assert report.eval_loss_first is not None
    assert report.ledger["rows_in"] == 5
    assert report.ledger["tokens_in"] == sum(report.ledger[f"tokens_{n}"] for n in ("kept", "truncated", "dropped"))


def test_a_run_repeats_from_its_plan_file(data: list[str], tmp_path: Path) -> None:
    from memcfg import planfile

    plan = plan_of(*data, "packing=bfd_split", "truncation.max_length=64", "run.steps=3", "run.log_steps=1")
    train(plan, load().hooks(plan), tmp_path / "a")
    again = planfile.load(tmp_path / "a" / "resolved.yaml")
    train(again, load().hooks(again), tmp_path / "b")

    def losses(name: str) -> list[Any]:
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return [(line["loss"], line.get("grad_norm")) for line in map(json.loads, lines)]

    assert losses("a") == losses("b")


def test_a_trainer_that_nobody_implements_is_refused_before_the_data_is_read(data: list[str], tmp_path: Path) -> None:
    plan = plan_of(*data)
    orphaned = replace(plan, providers={key: who for key, who in plan.providers.items() if key != "trainer.name"})
    hooks = load().hooks(orphaned)
    with pytest.raises(PluginError, match=r"no installed plugin implements `trainer.name=sft`"):
        train(orphaned, hooks, tmp_path / "run")
    assert hooks.calls == []
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "because"),
    [
        ("", "no rows"),
        ('{"text": ""}\n{"text": ""}\n', "empty rows"),
        ('{"words": "x"}\n', "another column"),
        ('{"text": 3}\n', "another type"),
        ('{"text": "a"\n', "a corrupt line"),
        ('{"prompt": "a b c d e f g h i j k l", "completion": "x"}\n', "the completion is cut off"),
    ],
)
def test_unusable_data_leaves_nothing_behind(tmp_path: Path, content: str, because: str) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(content)
    plan = plan_of("data=jsonl", f"data.path={file}", *TINY, "truncation.max_length=4", "run.steps=1")
    hooks = load().hooks(plan)
    with pytest.raises(DataError):
        train(plan, hooks, tmp_path / "run")
    assert "memcfg_load_model" not in {call.hook for call in hooks.calls}, because
    assert not (tmp_path / "run").exists()


def test_data_that_a_source_reads_in_vain_costs_no_model(tmp_path: Path) -> None:
    plan = plan_of("data=jsonl", f"data.path={tmp_path / 'absent.jsonl'}", *TINY)
    with pytest.raises(DataError, match="absent"):
        train(plan, load().hooks(plan), tmp_path / "run")
    assert not (tmp_path / "run").exists()
