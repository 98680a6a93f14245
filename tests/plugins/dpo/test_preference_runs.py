"""Whole runs of the preference trainers under one technique after the other: each says itself that it is in force, or stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import memcfg
from memcfg import ConflictError, DataError, RunError
from memcfg.engine.execute import train
from memcfg.registry import load

pytestmark = pytest.mark.torch

SMALL = [
    "model.hidden=32", "model.layers=2", "run.steps=2", "run.batch_size=4", "run.log_steps=1", "data=jsonl",
    "data.eval_rows=4", "truncation.max_length=64",
]  # fmt: skip


def pairs(folder: Path, count: int = 16, **more: Any) -> str:
    """A file of pairs."""
    file = folder / "pairs.jsonl"
    lines = [
        {
            "prompt": f"Say number {i}.",
            "chosen": f" It is {i}{' indeed' * (i % 5)}.",
            "rejected": f" No{' way' * (i % 3)} {i}.",
        }
        for i in range(count)
    ]
    file.write_text("".join(json.dumps(line | more) + "\n" for line in lines), encoding="utf-8")
    return f"data.path={file}"


def ran(folder: Path, *overrides: str, path: str | None = None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The lines of metrics and what was effective."""
    torch.set_num_threads(1)
    plan = memcfg.resolve([*SMALL, path or pairs(folder), *overrides])
    train(plan, load().hooks(plan), folder / "run")
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return lines, json.loads((folder / "run" / "effective.json").read_text())


@pytest.mark.parametrize("trainer", ["dpo", "kto", "reward"])
@pytest.mark.parametrize(
    "technique",
    [
        ["padding_free=on", "padding.multiple_of=8"],
        ["peft=lora", "peft.targets=[q_proj,v_proj]"],
        ["checkpointing=none", "loss.chunk_mib=1", "run.accumulation=2"],
    ],
)
def test_techniques_are_in_force(tmp_path: Path, trainer: str, technique: list[str]) -> None:
    read = [word for word in technique if trainer != "reward" or word != "loss.chunk_mib=1"]  # its head has no chunks
    lines, effective = ran(tmp_path, f"trainer={trainer}", *read)
    assert effective["trainer.name"]["effective"] == trainer
    if trainer != "reward":
        mode = "adapter" if "peft=lora" in technique else "live"
        assert effective["reference.mode"]["effective"] == mode
    for side in ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"):
        assert all(isinstance(lines[-1][key], float) for key in (side, f"eval_{side}"))
    assert (tmp_path / "run" / "model" / "config.json").is_file()


def test_padding_free_gives_the_same_losses(tmp_path: Path) -> None:
    path = pairs(tmp_path)
    padded, _ = ran(tmp_path / "padded", "trainer=dpo", path=path)
    free, effective = ran(tmp_path / "free", "trainer=dpo", "padding_free=on", path=path)
    assert effective["batch.layout"]["effective"] != "padded"
    for one, other in zip(padded, free, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-6)
        assert one["eval_loss"] == pytest.approx(other["eval_loss"], abs=1e-6) if "eval_loss" in one else True


def test_a_precomputed_reference_gives_the_same_losses(tmp_path: Path) -> None:
    path = pairs(tmp_path)
    live, _ = ran(tmp_path / "live", "trainer=dpo", path=path)
    known, effective = ran(tmp_path / "known", "trainer=dpo", "reference=precompute", "padding_free=on", path=path)
    assert effective["reference.mode"]["evidence"].startswith("known for 16 rows")
    assert [line["loss"] for line in known] == pytest.approx([line["loss"] for line in live], abs=1e-6)


def test_a_reference_can_be_another_saved_model(tmp_path: Path) -> None:
    path = pairs(tmp_path)
    ran(tmp_path / "first", "trainer=dpo", path=path)
    saved = f"reference.path={tmp_path / 'first' / 'run' / 'model'}"
    lines, _ = ran(tmp_path / "second", "trainer=dpo", saved, "run.seed=3", path=path)
    assert lines[0]["loss"] != pytest.approx(0.6931, abs=1e-4), "the policy does not begin as its reference"
    with pytest.raises(RunError, match=r"`reference\.path`: no such folder"):
        ran(tmp_path / "third", "trainer=dpo", f"reference.path={tmp_path / 'nowhere'}", path=path)


def test_a_reference_of_other_tokens_is_refused(tmp_path: Path) -> None:
    path = pairs(tmp_path)
    ran(tmp_path / "first", "trainer=dpo", path=path)
    folder = tmp_path / "first" / "run" / "model"
    file = folder / "tokenizer.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    words = known["model"]["vocab"]
    words["a"], words["b"] = words["b"], words["a"]
    file.write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(
        RunError, match=r"`reference\.path`: the tokenizers differ: `[ab]` is token \d+ of the reference"
    ):
        ran(tmp_path / "second", "trainer=dpo", f"reference.path={folder}", path=path)


def test_distillation_needs_a_teacher_and_halves_the_distance(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    row = lambda i: json.dumps({"prompt": f"Say {i}.", "completion": f" It is {i}."}) + "\n"  # noqa: E731
    file.write_text("".join(map(row, range(40))), encoding="utf-8")
    path = f"data.path={file}"
    with pytest.raises(ConflictError, match=r"no teacher is named: add `gkd\.teacher=FOLDER`"):
        ran(tmp_path / "none", "trainer=gkd", path=path)
    ran(tmp_path / "teacher", "trainer=sft", "run.steps=20", "run.learning_rate=0.01", path=path)
    saved = f"gkd.teacher={tmp_path / 'teacher' / 'run' / 'model'}"
    lines, effective = ran(tmp_path / "student", "trainer=gkd", saved, "run.seed=7", "run.steps=40", "padding_free=on",
                           "run.learning_rate=0.01", path=path)  # fmt: skip
    assert effective["trainer.name"]["effective"] == "gkd"
    assert lines[-1]["eval_loss"] < 0.5 * lines[0]["eval_loss"]


@pytest.mark.parametrize(
    ("trainer", "row", "message"),
    [
        ("dpo", {"text": "alone"}, "`trainer=dpo` needs rows with"),
        ("dpo", {"prompt": "a", "chosen": "b", "rejected": "b"}, "both completions are the same"),
        ("reward", {"prompt": "a", "chosen": "b", "rejected": ""}, "all 16 rows are empty"),
        ("kto", {"prompt": "a", "completion": "b", "label": True}, "none of the 12 training rows is undesirable"),
    ],
)
def test_bad_rows_are_explained(tmp_path: Path, trainer: str, row: dict[str, Any], message: str) -> None:
    file = tmp_path / "bad.jsonl"
    lines = [json.dumps(row | {"prompt": f"{row['prompt']} {i}"} if "prompt" in row else row) + "\n" for i in range(16)]
    file.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        ran(tmp_path, f"trainer={trainer}", path=f"data.path={file}")


def test_margins_reach_the_loss(tmp_path: Path) -> None:
    path = pairs(tmp_path, margin=2.0)
    with_margin, _ = ran(tmp_path / "margin", "trainer=reward", path=path)
    without, _ = ran(tmp_path / "none", "trainer=reward", path=pairs(tmp_path))
    assert with_margin[0]["loss"] > without[0]["loss"] + 0.5


def test_a_template_makes_conversations_text(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    talk = lambda i, answer: [{"role": "user", "content": f"Say {i}."}, {"role": "assistant", "content": answer}]  # noqa: E731
    lines = [{"chosen": talk(i, f"It is {i}."), "rejected": talk(i, "No.")} for i in range(16)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    lines_of, _ = ran(tmp_path, "trainer=dpo", path=f"data.path={file}")
    assert lines_of[0]["loss"] == pytest.approx(0.6931, abs=1e-4)
