"""Ids that the model has no embedding for are found before they reach it, and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

import memcfg
from memcfg import DataError
from memcfg.batch import Documents
from memcfg.engine import vocabulary
from memcfg.engine.build import build
from memcfg.registry import load

pytestmark = pytest.mark.torch

HELD = [
    ({"input_ids": [[1, 9], [3]]}, None, "all ids are below ten"),
    ({"input_ids": [[1], [2, 10]]}, "row 2 of the prepared train rows holds 10 in `input_ids`", "ten is not"),
    ({"input_ids": [[1], [2]], "labels": [[-100], [11]]}, "row 2 of the prepared train rows holds 11 in `labels`", "labels too"),
    ({"input_ids": [[], [10], [11]]}, "row 2 of the prepared train rows holds 10", "the first of several; empty rows hold none"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "text", "because"), HELD)
def test_held_rows(columns: dict[str, Any], text: str | None, because: str) -> None:
    rows = datasets.Dataset.from_dict(columns)
    if text is None:
        vocabulary.check(rows, "train", 10)
        return
    with pytest.raises(DataError, match=text) as caught:
        vocabulary.check(rows, "train", 10)
    assert "the model's vocabulary ends at 9" in str(caught.value), because


def test_rows_that_a_selection_left_out_do_not_count() -> None:
    vocabulary.check(datasets.Dataset.from_dict({"input_ids": [[1], [99]]}).select([0]), "train", 10)


def test_a_stream_is_looked_at_as_it_comes() -> None:
    import torch

    def collator(rows: list[dict[str, Any]]) -> Documents:
        ids = [torch.tensor(row["input_ids"]) for row in rows]
        return Documents(ids, ids, [[i] for i in range(len(ids))])

    collate = vocabulary.checked(collator, 10)
    assert len(collate([{"input_ids": [1, 9]}]).input_ids) == 1
    with pytest.raises(DataError, match=r"document 2 of a micro-batch holds 12 in `input_ids`"):
        collate([{"input_ids": [1]}, {"input_ids": [12]}])


TRUST = [
    (("text",), 10, True, "the tokenizer made the ids"),
    (("text",), 9, False, "the tokenizer has more tokens than the model knows"),
    (("input_ids", "labels"), 10, False, "the rows brought them"),
]


@pytest.mark.parametrize(("columns", "known", "trusted", "because"), TRUST)
def test_which_rows_need_no_look(columns: tuple[str, ...], known: int, trusted: bool, because: str) -> None:
    assert vocabulary.trusted(columns, range(10), known) is trusted, because


@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_with_foreign_ids_does_not_begin(tmp_path: Path, streaming: bool) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"input_ids": [5, 6, 10**6]}) + "\n" for _ in range(3)))
    plan = memcfg.resolve([
        "data=jsonl", f"data.path={file}", f"data.streaming={streaming}", "model.layers=1", "model.hidden=32", "model.heads=2",
        "model.kv_heads=1",
    ])  # fmt: skip
    with pytest.raises(DataError, match=r"holds 1,000,000 in `input_ids`, and the model's vocabulary ends at 2,047"):
        first_batch(plan)


def first_batch(plan: memcfg.Plan) -> Documents:
    run = build(plan, load().hooks(plan))
    assert run.collator is not None
    return run.collator(list(run.train.take(1)))


ADAPTERS = [
    {"target_modules": ["embed_tokens"]},
    {"modules_to_save": ["embed_tokens"]},
    {"trainable_token_indices": [1]},
]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: next(iter(adapter)))
def test_the_size_is_found_inside_of_an_adapter(adapter: dict[str, Any]) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=40, **sizes))
    adapted = get_peft_model(
        model, LoraConfig(r=2, task_type="CAUSAL_LM", **({"target_modules": ["q_proj"]} | adapter))
    )
    assert vocabulary.size(adapted) == 40
    assert vocabulary.embedding(adapted).embedding_dim == 16
