"""Parquet files, folders and names of the hub; rows that cannot be read, left out and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from memcfg_data import columnar, hooks

from memcfg import DataError
from memcfg.engine.ledger import Ledger

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMCFG_CACHE", str(tmp_path / "cache"))


def plan_of(source: str, path: Path | str, **choices: Any) -> dict[str, Any]:
    return {"data.source": source, "data.path": str(path), "data.split": "train"} | {
        f"data.{name}": value for name, value in choices.items()
    }


def load(source: str, path: Path | str, part: str = "train", **choices: Any) -> tuple[Any, Ledger]:
    ledger = Ledger()
    return hooks.memcfg_load_dataset(plan_of(source, path, **choices), part, ledger), ledger


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


TURNS = [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b", "name": "n"}]]
TABLES = [
    ({"text": ["a", "b"], "other": [1, 2]}, [{"text": "a"}, {"text": "b"}]),
    ({"prompt": ["1"], "completion": ["2"], "label": [True]}, [{"prompt": "1", "completion": "2", "label": True}]),
    ({"messages": TURNS}, [{"messages": turns} for turns in TURNS]),
    ({"input_ids": [[1, 2]], "labels": [[-100, 2]]}, [{"input_ids": [1, 2], "labels": [-100, 2]}]),
    ({"prompt": ["a"], "answer": ["b"]}, [{"prompt": "a", "answer": "b"}]),
    ({"chosen": TURNS, "rejected": TURNS}, [{"chosen": t, "rejected": t} for t in TURNS]),
]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("columns", "rows"), TABLES)
def test_forms_in_parquet(tmp_path: Path, columns: Any, rows: list[Any], streaming: bool) -> None:
    found, _ = load("parquet", parquet(tmp_path / "a.parquet", columns), streaming=streaming)
    assert [{k: v for k, v in row.items() if v is not None} for row in found] == rows


def test_a_folder_of_parquet_and_more_than_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "BATCH", 2)
    for name, texts in (("b", ["4", "5"]), ("a", ["1", "2", "3"])):
        parquet(tmp_path / f"{name}.parquet", {"text": texts})
    for streaming in (False, True):
        found, _ = load("parquet", tmp_path, streaming=streaming)
        assert [row["text"] for row in found] == ["1", "2", "3", "4", "5"]


def test_two_forms_in_one_table_are_told_apart_by_name(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"text": ["a"], "messages": TURNS[:1]})
    with pytest.raises(DataError, match="`text`, `messages` together") as caught:
        load("parquet", path)
    assert "data.columns=[messages]" in str(caught.value)
    assert list(load("parquet", path, columns=["messages"])[0]) == [{"messages": TURNS[0]}]


FAULTS: list[tuple[Any, str]] = [
    ({"text": [1, 2]}, r"`text` holds int64, not a string"),
    ({"text": pa.nulls(2)}, r"`text` is null in every row"),
    ({"text": ["a", None]}, r"`text` is null in row 2"),
    ({"text": ["", " "]}, r"all 2 rows are empty: no row has any `text`"),
    ({"prompt": ["a", "b"], "completion": ["", " "]}, r"all 2 rows are empty: every `completion` is empty"),
    ({"text": pa.array([], pa.string())}, r"holds no rows"),
    ({"body": ["a"]}, r"has neither `text`, nor `messages`"),
    ({"messages": [["a"]]}, r"`messages` holds list<.*string>, not a list of messages"),
    ({"messages": [[{"from": "a"}]]}, r"row 1, `messages`: message 0 has no `role`; its keys: `from`"),
    ({"input_ids": [[1, 2], [3, -4]]}, r"row 2 holds -4 in `input_ids`, which is no token id"),
    ({"input_ids": [[1, None]]}, r"row 1 holds None in `input_ids`, which is no token id"),
    ({"input_ids": [[1], [2]], "labels": [[1], [2, 3]]}, r"row 2 has 2 values in `labels` and 1 in `input_ids`"),
    ({"input_ids": [[1], [2]], "labels": [[1], None]}, r"row 2 has no `labels`, which other rows have"),
    ({"input_ids": [[1], [2]], "labels": [[1], [-1]]}, r"row 2 holds -1 in `labels`"),
    ({"input_ids": [[1]], "labels": [[0.5]]}, r"`labels` holds list<.*double>, not a list of whole numbers"),
    ({"body": ["a"], "text": [None]}, r"`text` is null in every row"),
    ({"input_ids": [[0.5]]}, r"`input_ids` holds list<.*double>, not a list of whole numbers"),
]


@pytest.mark.parametrize(("columns", "text"), FAULTS, ids=[text[:30] for _, text in FAULTS])
def test_each_fault_of_a_table_is_one_message(tmp_path: Path, columns: Any, text: str) -> None:
    path = parquet(tmp_path / "a.parquet", columns)
    with pytest.raises(DataError, match=text) as caught:
        load("parquet", path)
    assert len(caught.value.problems) == 1
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("not at all")
    with pytest.raises(DataError, match="is no Parquet file"):
        load("parquet", tmp_path / "a.parquet")


BAD = ['{"text": "a"}', "{", '{"text": 3}', '{"text": null}', '{"text": "b"}', '{"text": "\\ud800"}']


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_that_cannot_be_read_are_left_out_and_counted(
    tmp_path: Path, streaming: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(BAD))
    for _ in range(2):  # the second time from the cache
        found, ledger = load("jsonl", path, on_error="skip", streaming=streaming)
        assert [row["text"] for row in found] == ["a", "b"]
        assert (ledger.rows_in, ledger.rows_dropped, dict(ledger.reasons)) == (4, 4, {"could not be read": 4})
    if not streaming:
        assert "left out 4 rows that could not be read" in caplog.text
        assert "line 2 is not JSON" in caplog.text
    with pytest.raises(DataError, match="line 2 is not JSON"):
        list(load("jsonl", path, streaming=streaming)[0])


def test_a_file_of_nothing_but_bad_rows_is_refused_even_then(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{\n[\n")
    with pytest.raises(DataError, match="none of its rows can be used; the first: line 1 is not JSON"):
        load("jsonl", path, on_error="skip")


def test_nulls_in_a_table_are_left_out_on_request(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"text": ["a", None, "b"]})
    found, ledger = load("parquet", path, on_error="skip")
    assert [row["text"] for row in found] == ["a", "b"]
    assert (ledger.rows_dropped, ledger.rows_in) == (1, 1)


MIXED = {
    "messages": [[{"role": "user", "content": "a"}], [{"role": None, "content": "b"}], None],
    "input_ids": [[1, 2], [3, -1], None],
}


@pytest.mark.parametrize("name", list(MIXED))
@pytest.mark.parametrize("streaming", [False, True])
def test_every_kind_of_bad_row_of_a_table_is_left_out_on_request(tmp_path: Path, name: str, streaming: bool) -> None:
    path = parquet(tmp_path / "a.parquet", {name: MIXED[name]})
    found, ledger = load("parquet", path, on_error="skip", streaming=streaming)
    assert [row[name] for row in found] == MIXED[name][:1]
    assert (ledger.rows_dropped, ledger.rows_in) == (2, 2)


def test_categories_are_text(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"text": pa.array(["a", "b", "a"]).dictionary_encode()})
    assert [row["text"] for row in load("parquet", path)[0]] == ["a", "b", "a"]


@pytest.mark.parametrize("number", [1, 3])
def test_a_stream_stops_at_the_first_null(tmp_path: Path, number: int) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "".join(f'{{"text": {"null" if n == number else "1" and chr(34) + "a" + chr(34)}}}\n' for n in range(1, 6))
    )
    with pytest.raises(DataError, match=rf"line {number} `text` is null\n  leave such rows out") as caught:
        list(load("jsonl", path, streaming=True)[0])
    assert len(caught.value.problems) == 1


def test_a_folder_that_datasets_saved(tmp_path: Path) -> None:
    made = datasets.DatasetDict({
        "train": datasets.Dataset.from_dict({"text": ["a", "b"], "id": [1, 2]}),
        "test": datasets.Dataset.from_dict({"text": ["c"], "id": [3]}),
    })  # fmt: skip
    made.save_to_disk(tmp_path / "saved")
    assert list(load("hub", tmp_path / "saved")[0]) == [{"text": "a"}, {"text": "b"}]
    assert list(load("hub", tmp_path / "saved", "eval", eval_split="test")[0]) == [{"text": "c"}]
    assert list(load("hub", tmp_path / "saved", streaming=True)[0]) == [{"text": "a"}, {"text": "b"}]
    assert load("hub", tmp_path / "saved", "eval")[0] is None
    with pytest.raises(DataError, match="has no split `dev`"):
        load("hub", tmp_path / "saved", split="dev")


def test_conversations_of_a_saved_folder_lose_the_nulls_of_their_structs(tmp_path: Path) -> None:
    datasets.Dataset(pa.table({"messages": TURNS})).save_to_disk(tmp_path / "saved")
    for streaming in (False, True):
        assert [row["messages"] for row in load("hub", tmp_path / "saved", streaming=streaming)[0]] == TURNS


@pytest.mark.parametrize("streaming", [False, True])
def test_a_name_without_a_network_is_one_message(monkeypatch: pytest.MonkeyPatch, streaming: bool) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach 'acme/rows' on the Hub (LocalEntryNotFoundError)")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError, match="the hub cannot be reached from here") as caught:
        load("hub", "acme/rows", streaming=streaming)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].key == "data.path"


def test_rows_are_held_out_of_files_by_content(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": str(i)}]} for i in range(20)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    train, held = (list(load("jsonl", path, part, eval_rows=5)[0]) for part in ("train", "eval"))
    assert len(held) == 5
    assert sorted(map(str, train + held)) == sorted(map(str, rows))
