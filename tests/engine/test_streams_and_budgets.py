"""Rows that come one after another, micro-batches bounded by tokens, conversations: through memcfg's own plugins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import memcfg
from memcfg import DataError, Plan
from memcfg.engine.build import build
from memcfg.engine.execute import train
from memcfg.engine.loader import MicroBatches, StepLoader
from memcfg.engine.update import gradients
from memcfg.registry import load

pytestmark = pytest.mark.torch

TINY = ["model.dtype=float32", "model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.layers=2"]
TEXTS = [
    "Return the sum of two numbers.", "x = 1", "def add(a, b):\n    return a + b", "A short line of text.",
    "Open the file, read every line, close the file again and return the lines that were read.", "import os",
]  # fmt: skip


def written(folder: Path, rows: list[dict[str, Any]]) -> list[str]:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["data=jsonl", f"data.path={file}", *TINY]


def plan_of(*overrides: str) -> Plan:
    return memcfg.resolve(list(overrides))


def step_of_all(plan: Plan) -> tuple[float, int, torch.Tensor, int]:
    """Loss, targets and gradients of one step over all rows, and in how many micro-batches."""
    torch.manual_seed(0)
    run = build(plan, load().hooks(plan))
    batches = MicroBatches(run.train, run.collator, run.layout, plan["run.batch_size"], grouping=run.grouping)
    groups = len(batches.groups(range(len(run.train))))
    step = StepLoader(batches, accumulation=groups, seed=0).at(0, 0)
    result = gradients(run.model, [batch.to(plan.device) for batch in step], run.objective, contexts=run.contexts)
    grads = torch.cat([p.grad.double().flatten() for p in run.model.parameters() if p.grad is not None])
    return float(result.loss), int(result.count), grads, len(step)


def test_a_step_of_batches_bounded_by_tokens_is_the_same_step(tmp_path: Path) -> None:
    data = written(tmp_path, [{"text": text} for text in TEXTS])
    whole = step_of_all(plan_of(*data, "run.batch_size=6"))
    bounded = step_of_all(plan_of(*data, "batching=tokens", "batching.tokens=40", "truncation.max_length=40"))
    assert (whole[3], whole[1]) == (1, bounded[1])
    assert bounded[3] > 1
    assert bounded[0] == pytest.approx(whole[0], abs=1e-6)
    assert torch.allclose(bounded[2], whole[2], atol=1e-6)


def test_a_document_longer_than_any_budget_is_named(tmp_path: Path) -> None:
    data = written(tmp_path, [{"text": "a"}, {"text": "word " * 400}])
    plan = plan_of(*data, "batching=tokens", "batching.tokens=64", "truncation=none", "run.steps=1")
    with pytest.raises(DataError, match="more than a micro-batch may have"):
        train(plan, load().hooks(plan), tmp_path / "run")


def test_a_length_that_leaves_no_target_says_what_to_raise(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": "hi"}], "completion": [{"role": "assistant", "content": "yo"}]}]
    plan = plan_of(*written(tmp_path, rows), "truncation.max_length=4", "run.steps=1")
    with pytest.raises(DataError, match=r"none of the 1 train rows has a target") as caught:
        build(plan, load().hooks(plan))
    assert "truncation.max_length" in str(caught.value)


@pytest.mark.parametrize("packing", ["bfd", "none"])
def test_a_stream_is_trained_on(tmp_path: Path, packing: str) -> None:
    data = written(tmp_path, [{"text": text} for text in TEXTS * 3])
    buffer = ["packing.buffer=6"] if packing != "none" else []
    plan = plan_of(*data, "data.streaming=true", f"packing={packing}", "truncation.max_length=32", *buffer,
                   "run.steps=3", "run.save_steps=2")  # fmt: skip
    report = train(plan, load().hooks(plan), tmp_path / "run")
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert ledger["tokens_in"] == ledger["tokens_kept"] + ledger["tokens_truncated"] + ledger["tokens_dropped"]
    assert 0 < ledger["rows_in"] <= len(TEXTS * 3)
    assert any("stream" in note for note in ledger["notes"])
    assert ledger["padding_share"] is not None
    assert report.steps == 3
    place = json.loads((tmp_path / "run" / "checkpoint-2" / "loader.json").read_text())
    assert (place["epoch"], place["position"]) == (0, 2)
    assert place["stream"]


def test_conversations_train_the_small_model_with_its_own_template(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]
    plan = plan_of(*written(tmp_path, [{"messages": turns}] * 4), "sft.assistant_only=true", "run.steps=1")
    run = build(plan, load().hooks(plan))
    assert run.tokenizer is not None
    row = run.train[0]
    learned = [token for token in row["labels"] if token != -100]
    assert run.tokenizer.decode(learned).startswith("2")
    assert learned[-1] == run.tokenizer.eos_token_id
    assert run.tokenizer.chat_template, "saved with the model"
