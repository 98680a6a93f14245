"""Streams are tokenised, cut and packed a piece at a time: never read whole, nothing lost, and continued where they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import datasets
import pytest
from memcfg_packing import hooks as packing
from memcfg_sft import hooks as sft
from memcfg_truncation import hooks as truncation
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from memcfg.engine.ledger import Ledger

pytestmark = pytest.mark.torch

ROWS = 50
STRATEGIES = ["none", "bfd", "bfd_split", "wrapped"]


def words() -> PreTrainedTokenizerFast:
    names = ["<pad>", "</s>", *(f"w{i}" for i in range(200))]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>")


def texts() -> list[dict[str, str]]:
    """Rows of one to eleven words; one in ten has none."""
    return [
        {"text": " ".join(f"w{(i * 7 + j) % 200}" for j in range(0 if i % 10 == 9 else 1 + i % 11))}
        for i in range(ROWS)
    ]


class Source:
    """A stream that counts how many rows were asked of it."""

    def __init__(self) -> None:
        self.pulled = 0

    def rows(self) -> Iterator[dict[str, str]]:
        for row in texts():
            self.pulled += 1
            yield row

    def stream(self) -> datasets.IterableDataset:
        return datasets.IterableDataset.from_generator(self.rows)


def plan_of(strategy: str, **values: Any) -> dict[str, Any]:
    return {"packing.strategy": strategy, "truncation.max_length": 8, "packing.eval": True, "packing.buffer": 10,
            "padding_free.enabled": strategy != "wrapped", "truncation.mode": "keep_start", "run.seed": 0} | values  # fmt: skip


def prepared(plan: dict[str, Any], rows: Any) -> tuple[Any, Ledger]:
    ledger = Ledger()
    rows = sft.memcfg_prepare_dataset(plan, rows, words(), ledger, "train")
    rows = truncation.memcfg_prepare_dataset(plan, rows, ledger, "train")
    return packing.memcfg_prepare_dataset(plan, rows, ledger, "train"), ledger


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_one_row_needs_no_more_than_a_buffer(strategy: str) -> None:
    source = Source()
    stream, _ = prepared(plan_of(strategy), source.stream())
    assert source.pulled <= 1
    source.pulled = 0
    next(iter(stream))
    assert 0 < source.pulled <= 21, "ten documents, and the texts without any among them"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stream_gives_the_tokens_of_the_whole(strategy: str) -> None:
    streamed, counted = prepared(plan_of(strategy), Source().stream())
    whole, expected = prepared(plan_of(strategy), datasets.Dataset.from_list(texts()))
    rows = list(streamed)
    assert all(0 < len(row["input_ids"]) == len(row["labels"]) <= 8 for row in rows)
    assert all(sum(row["seq_lengths"]) == len(row["input_ids"]) for row in rows if "seq_lengths" in row)
    assert Counter(t for row in rows for t in row["input_ids"]) == Counter(t for row in whole for t in row["input_ids"])
    for name in (
        "tokens_in",
        "tokens_kept",
        "tokens_truncated",
        "tokens_dropped",
        "rows_in",
        "rows_dropped",
        "reasons",
    ):
        assert getattr(counted, name) == getattr(expected, name), name
    assert counted.balance == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("taken", [0, 1, 3, 9, 14])
def test_a_stream_goes_on_where_its_state_was_taken(strategy: str, taken: int) -> None:
    stream, _ = prepared(plan_of(strategy), Source().stream())
    everything = list(prepared(plan_of(strategy), Source().stream())[0])
    assert list(islice(stream, taken)) == everything[:taken]
    state = stream.state_dict()
    again, _ = prepared(plan_of(strategy), Source().stream())
    again.load_state_dict(state)
    assert list(again) == everything[taken:] if taken else everything


def test_rows_of_a_buffer_come_in_no_order_of_length() -> None:
    lengths = [
        len(row["input_ids"]) for row in prepared(plan_of("bfd", **{"packing.buffer": 50}), Source().stream())[0]
    ]
    assert lengths != sorted(lengths, reverse=True)
    other = prepared(plan_of("bfd", **{"packing.buffer": 50, "run.seed": 1}), Source().stream())[0]
    assert [len(row["input_ids"]) for row in other] != lengths
    assert sorted(len(row["input_ids"]) for row in other) == sorted(lengths)
