"""Packing as a step of preparing the data: what it is told by the plan, and what it tells the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow as pa
import pytest
from memcfg_packing import hooks

import memcfg
from memcfg import ConflictError, DataError, Plan
from memcfg.engine.ledger import Ledger

pytestmark = pytest.mark.torch


def plan_of(strategy: str, length: int | None = 5, **values: Any) -> Any:
    """The keys that the hook reads."""
    return {"packing.strategy": strategy, "truncation.max_length": length, "packing.eval": True,
            "padding_free.enabled": strategy != "wrapped", "truncation.mode": "keep_start"} | {
        name.replace("__", "."): value for name, value in values.items()}  # fmt: skip


def rows_of(labels: list[list[int]], **columns: list[Any]) -> datasets.Dataset:
    """Rows whose token ids are 1, 2, 3 ... and whose labels are as given."""
    ids = [list(range(1, len(row) + 1)) for row in labels]
    return datasets.Dataset(
        pa.table({"input_ids": pa.array(ids, pa.list_(pa.int32())), "labels": pa.array(labels, pa.list_(pa.int64()))} | columns)
    )  # fmt: skip


def prepared(plan: Mapping[str, Any], rows: datasets.Dataset, split: str = "train") -> tuple[datasets.Dataset, Ledger]:
    tokens = sum(len(row) for row in rows["labels"])
    learned = sum(label != -100 for row in rows["labels"] for label in row[1:])
    ledger = Ledger(tokens_in=tokens, tokens_kept=tokens, tokens_supervised=learned, rows_in=len(rows))
    return hooks.memcfg_prepare_dataset(plan, rows, ledger, split), ledger


ALL = [[1, 2, 3, 4, 5, 6], [1, 2], [1, 2, 3]]
COUNTS = [
    # strategy, kept, truncated, dropped, supervised, bins, fill, because
    ("bfd", 10, 1, 0, 7, 2, 1.0, "the sixth token of the first document is cut off; three documents begin"),
    ("bfd_split", 11, 0, 0, 7, 3, 11 / 15, "the sixth token is a document of its own, so it is no target"),
    ("wrapped", 11, 0, 0, 8, 3, 11 / 15, "documents run on, so only three rows begin"),
]


@pytest.mark.parametrize(("strategy", "kept", "truncated", "dropped", "supervised", "bins", "fill", "because"), COUNTS)
def test_the_ledger_accounts_for_every_token(
    strategy: str, kept: int, truncated: int, dropped: int, supervised: int, bins: int, fill: float, because: str
) -> None:
    packed, ledger = prepared(plan_of(strategy), rows_of(ALL))
    assert (ledger.tokens_kept, ledger.tokens_truncated, ledger.tokens_dropped) == (kept, truncated, dropped), because
    assert (ledger.tokens_supervised, ledger.bins, ledger.fill) == (supervised, bins, fill), because
    assert ledger.balance == 0
    assert len(packed) == bins


def test_a_document_whose_targets_are_cut_off_is_dropped_and_counted() -> None:
    labels = [[-100, -100, -100, -100, -100, -100, 7, 8], [1, 2, 3], [-100, 5]]
    packed, ledger = prepared(plan_of("bfd"), rows_of(labels))
    assert packed["labels"][:] == [[1, 2, 3, -100, 5]]
    assert (ledger.rows_dropped, ledger.tokens_dropped, ledger.tokens_truncated) == (1, 8, 0)
    assert dict(ledger.reasons) == {"no target left": 1}
    assert (ledger.balance, ledger.tokens_supervised) == (0, 3)


def test_keep_end_keeps_the_completion() -> None:
    labels = [[-100, -100, -100, -100, -100, -100, 7, 8]]
    packed, ledger = prepared(plan_of("bfd", truncation__mode="keep_end"), rows_of(labels))
    assert packed["labels"][:] == [[-100, -100, -100, 7, 8]]
    assert packed["input_ids"][:] == [[4, 5, 6, 7, 8]]
    assert (ledger.tokens_truncated, ledger.rows_dropped) == (3, 0)


def test_nothing_is_dropped_where_documents_are_split() -> None:
    labels = [[-100] * 12 + [7, 8]]
    packed, ledger = prepared(plan_of("bfd_split"), rows_of(labels))
    assert [len(row) for row in packed["labels"]] == [5, 5, 4]
    assert (ledger.tokens_kept, ledger.tokens_dropped, ledger.tokens_supervised) == (14, 0, 2)


@pytest.mark.parametrize("strategy", ["bfd", "bfd_split", "wrapped"])
def test_rows_without_any_target_stop_the_run(strategy: str) -> None:
    with pytest.raises(DataError, match="has a target left to learn"):
        prepared(
            plan_of(strategy), rows_of([[-100] * 5 + [1], [2, -100]] if strategy == "bfd" else [[5, -100], [-100]])
        )


@pytest.mark.parametrize(("free", "marked"), [(True, True), (False, False)])
def test_wrapped_keeps_boundaries_only_where_documents_are_kept_apart(free: bool, marked: bool) -> None:
    packed, ledger = prepared(plan_of("wrapped", padding_free__enabled=free), rows_of(ALL))
    assert ("seq_lengths" in packed.column_names) is marked
    assert [("see each other" in note) for note in ledger.to_dict()["notes"]] == ([] if marked else [True])


@pytest.mark.parametrize(("split", "values", "packs"), [
    ("train", {}, True),
    ("eval", {}, True),
    ("eval", {"packing__eval": False}, False),
    ("train", {"packing__eval": False}, True),
    ("train", {"packing__strategy": "none"}, False),
])  # fmt: skip
def test_which_rows_are_packed(split: str, values: dict[str, Any], packs: bool) -> None:
    packed, _ = prepared(plan_of("bfd", **values), rows_of(ALL), split)
    assert ("seq_lengths" in packed.column_names) is packs


def test_a_column_that_holds_no_lists_is_dropped_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    packed, _ = prepared(plan_of("bfd"), rows_of(ALL, source=["a", "b", "c"]))
    assert packed.column_names == ["input_ids", "labels", "seq_lengths"]
    assert "`source`" in caplog.text


@pytest.mark.parametrize("strategy", ["bfd", "bfd_split", "wrapped"])
def test_the_strategy_is_read_back_from_the_rows(strategy: str) -> None:
    plan = plan_of(strategy)
    packed, _ = prepared(plan, rows_of(ALL))
    (found,) = hooks.memcfg_evidence(plan, SimpleNamespace(train=packed), [])
    assert (found.key, found.effective) == ("packing.strategy", strategy)


@pytest.mark.parametrize("strategy", ["bfd", "wrapped"])
def test_rows_that_were_not_packed_are_found_out(strategy: str) -> None:
    rows = rows_of([[1, 2], [1, 2, 3]])
    (found,) = hooks.memcfg_evidence(plan_of(strategy), SimpleNamespace(train=rows), [])
    assert found.effective == "none"


def plan(*overrides: str) -> Plan:
    return memcfg.resolve(list(overrides))


@pytest.mark.parametrize("spelling", ["+packing=bfd-requeue", "packing.strategy=bfd-requeue"])
def test_the_old_name_is_understood(spelling: str) -> None:
    found = plan(spelling)
    assert found["packing.strategy"] == "bfd_split"
    assert any(n.level == "deprecation" and "bfd-requeue" in n.text for n in found.notes)


@pytest.mark.parametrize("strategy", ["bfd", "bfd_split"])
def test_padding_free_is_forced_whatever_the_user_set(strategy: str) -> None:
    found = plan(f"packing={strategy}", "padding_free=off")
    assert found["padding_free.enabled"] is True
    assert found.decisions["padding_free.enabled"].kind == "overridden"
    assert any(n.rule == "packing.padding_free.forced" for n in found.notes)


def test_wrapped_says_that_documents_see_each_other_unless_they_do_not() -> None:
    assert any(n.rule == "packing.wrapped.mixed" for n in plan("packing=wrapped").notes)
    assert not any(n.rule == "packing.wrapped.mixed" for n in plan("packing=wrapped", "padding_free=on").notes)


REFUSED = [
    (["packing=bfd", "truncation.max_length=null"], "no length to fill"),
    (["packing=wrapped", "truncation=none"], "no length to fill"),
    (["packing=bfd", "trainer=dpo"], "not supervised fine-tuning"),
    (["packing=bfd_split", "truncation=keep_end"], "nothing is cut"),
    (["packing=wrapped", "truncation=keep_start"], "nothing is cut"),
    (["packing.eval=true"], "evaluation packing without packing"),
    (["packing=bfd", "packing.buffer=100"], "the data set is no stream"),
]


@pytest.mark.parametrize(("overrides", "because"), REFUSED)
def test_combinations_that_cannot_be(overrides: list[str], because: str) -> None:
    with pytest.raises(ConflictError):
        plan(*overrides)


def test_bfd_reads_which_end_to_keep() -> None:
    assert plan("packing=bfd", "truncation=keep_end")["truncation.mode"] == "keep_end"
