"""JSON Lines: strings arrive untouched, and each fault is one message with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from memcfg_data import hooks, jsonl

from memcfg import DataError, arrowfile

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMCFG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(folder: Path, content: str | bytes | list[Any], name: str = "rows.jsonl") -> Path:
    """A file of the given content; a list is written with one JSON value a line."""
    path = folder / name
    if isinstance(content, list):
        content = "".join(json.dumps(row) + "\n" for row in content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path | str, **choices: Any) -> list[dict[str, Any]]:
    plan = {"data.source": "jsonl"} | {f"data.{name}": value for name, value in choices.items()}
    return list(hooks.file_rows(plan, str(path), "data.path").rows)


UNTOUCHED = [
    "0012", "1e5", "2024-01-01", "2024-01-01T00:00:00Z", "null", "None", "true", "NaN", " spaces around ", "a\r\nb",
    "naïve 世界 🙂 é", "\u2028 is no new line", "tab\tand \\ backslash", "\x00 zero",
]  # fmt: skip


def test_strings_arrive_as_they_were_written(tmp_path: Path) -> None:
    rows = [{"text": text} for text in UNTOUCHED]
    assert read(written(tmp_path, rows)) == rows


def test_prompts_and_completions(tmp_path: Path) -> None:
    rows = [{"prompt": "1", "completion": "2"}, {"prompt": "", "completion": "x"}]
    assert read(written(tmp_path, rows)) == rows


FORMS = [
    (b'{"text": "a"}\r\n{"text": "b"}\r\n', ["a", "b"], "lines that end as on Windows"),
    (b'\xef\xbb\xbf{"text": "a"}\n', ["a"], "a byte order mark"),
    (b'\n\n{"text": "a"}\n   \n{"text": "b"}', ["a", "b"], "blank lines, and none at the end"),
    (b'{"text": "a", "id": 7}\n{"text": "b", "id": "x"}\n', ["a", "b"], "other columns may be of any type"),
    (b'{"text": "a", "label": 3}\n{"text": "b", "tools": 7}\n', ["a", "b"], "also where another form would read them"),
    (b'{"text": ""}\n{"text": "b"}\n', ["", "b"], "an empty row among others"),
]


@pytest.mark.parametrize(("content", "texts", "because"), FORMS)
def test_forms_that_are_read(tmp_path: Path, content: bytes, texts: list[str], because: str) -> None:
    assert [row["text"] for row in read(written(tmp_path, content))] == texts, because


FAULTS: list[tuple[Any, str]] = [
    ([{"text": "a"}, {"text": 3}], r"line 2 `text` is a number, not a string"),
    ([{"text": True}], r"line 1 `text` is a boolean, not a string"),
    ([{"text": ["a"]}], r"line 1 `text` is a list, not a string"),
    ([{"prompt": {"a": 1}, "completion": "b"}], r"line 1 `prompt` is an object, not a string"),
    (
        [{"body": "a", "id": 1}],
        r"line 1 has neither `text`, nor `messages`, nor `prompt` and `completion`; its columns: `body`, `id`",
    ),
    ([{"text": "a"}, {"id": 1}], r"line 2 has no `text`; its columns: `id`"),
    ([{"completion": "a"}], r"line 1 has no `prompt`; its columns: `completion`"),
    ([{"prompt": "a", "chosen": "b"}], r"line 1 has no `rejected`; its columns: `prompt`, `chosen`"),
    ([{"prompt": "a", "completion": "b"}, {"prompt": "a"}], r"line 2 has no `completion`; its columns: `prompt`"),
    ([{"messages": "a"}], r"line 1 `messages` is a string, not a list of messages"),
    ([{"messages": [{"content": "a"}]}], r"line 1 `messages`: message 0 has no `role`; its keys: `content`"),
    (
        [{"messages": [{"role": "user", "content": "a"}, "b"]}],
        r"line 1 `messages`: message 1 is a string, not an object",
    ),
    ([{"input_ids": [1, 2.5]}], r"line 1 `input_ids` is a list, not a list of whole numbers"),
    ([{"text": "a", "prompt": "b"}], r"line 1 has `text`, `prompt` together: a row has one form"),
    (
        [{"text": "a"}, {"text": "b", "completion": "c"}],
        r"line 2 has `text`, `completion` together: a file has one form",
    ),
    ([{"text": None}, {"text": None}], r"`text` is null in every row"),
    ([{"text": "a"}, {"text": None}, {"text": None}], r"`text` is null in 2 of 3 rows, first on line 2"),
    ([{"text": ""}, {"text": " \n"}], r"all 2 rows are empty: no row has any `text`"),
    ([{"prompt": "a", "completion": ""}], r"the only row is empty: every `completion` is empty"),
    ([{"prompt": "a", "completion": ""}] * 2, r"all 2 rows are empty: every `completion` is empty"),
    (
        [{"prompt": "a", "completion": ""}, {"prompt": "", "completion": "b"}],
        r"all 2 rows are empty: no row holds `prompt`, `completion` together",
    ),
    ([3], r"line 1 is a number, not an object"),
    ([[{"text": "a"}]], r"line 1 is a list, not an object; a JSON array must be rewritten"),
    ('{"text": "a"}\n\n{"text": "b"\n', r"line 3 is not JSON: expecting ',' delimiter at column"),
    ('{"text": "a"}\n{"text": "b"} x\n', r"line 2 is not JSON: extra data at column 15"),
    (b'{"text": "a"}\n{"text": "\xff\xfe"}\n', r"line 2 is not UTF-8 \(byte 11\)"),
    ('{"text": "a"}\n{"text": "\\ud800"}\n', r"line 2 holds half of a surrogate pair"),
    ('{"text": "a"}\n{"text": "b", "id": 1, "text": "c"}\n', r"line 2 has `text` twice in one object"),
    (
        '{"messages": [{"role": "user", "content": "a", "role": "system"}]}\n',
        r"line 1 has `role` twice in one object",
    ),
    ('{"text": "a", "score": NaN}\n', r"line 1 holds `NaN`, which JSON does not know"),
    ('{"text": "a"}\n{"text": "b", "score": 1e999}\n', r"line 2 holds `1e999`, which is beyond what a number can be"),
    ('{"text": "a"}\n{"text": "b", "score": [-Infinity]}\n', r"line 2 holds `-Infinity`, which JSON does not know"),
    ("[" * 100_000 + "\n", r"line 1 is not JSON"),
    ('{"text": "a"}\n{"text": "b\n', r"line 2 is not JSON: invalid control character at column 12"),
    ("\n \n", r"holds no rows, only blank lines"),
    (b"PAR1\x15\x04", r"is Parquet, not JSON Lines\n  read it with `data=parquet`"),
    (b"\x1f\x8b\x08", r"is compressed, and read as it is"),
    ('{"text": "a"}'.encode("utf-16"), r"is UTF-16, and JSON Lines are UTF-8"),
    ([{"input_ids": [1, 2]}, {"input_ids": [1, -2]}], r"line 2 holds -2 in `input_ids`, which is no token id"),
    ([{"input_ids": [1, 2**31]}], r"line 1 holds 2147483648 in `input_ids`, which is no token id"),
    (
        [{"input_ids": [1, 2], "labels": [-100, 2]}, {"input_ids": [1, 2], "labels": [2]}],
        r"line 2 has 1 values in `labels` and 2 in `input_ids`",
    ),
    ([{"input_ids": [1, 2], "labels": [2, -1]}], r"line 1 holds -1 in `labels`, which is neither a token id nor -100"),
    ([{"input_ids": [1, 2], "labels": [1.0, 2.0]}], r"line 1 `labels` is a list, not a list of whole numbers"),
    ([{"input_ids": [1, 2], "completion_mask": [0, 2]}], r"line 1 `completion_mask` is a list, not a list of 0 and 1"),
    (
        [{"input_ids": [1], "labels": [1]}, {"input_ids": [1]}],
        r"line 2 has no `labels`, which other rows have",
    ),
    ("", r"is empty"),
]


@pytest.mark.parametrize(("content", "text"), FAULTS, ids=[text[:40] for _, text in FAULTS])
def test_each_fault_is_one_message_with_its_line(tmp_path: Path, cache_folder: Path, content: Any, text: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=text) as caught:
        read(path)
    assert len(caught.value.problems) == 1
    assert str(path) in str(caught.value)
    assert not list(cache_folder.glob("**/*")), "nothing half-written is left"


def test_masks_are_zeros_and_ones_or_words(tmp_path: Path) -> None:
    rows = [
        {"input_ids": [1, 2], "completion_mask": [0, 1], "assistant_masks": [False, True]},
        {"input_ids": [3], "completion_mask": [True], "assistant_masks": [1]},
    ]
    assert read(written(tmp_path, rows)) == rows


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1 has none of `data.columns`; its columns: `text`"):
        read(written(tmp_path, [{"text": "a"}]), columns=["body"])


def test_a_file_that_is_not_there_names_its_neighbour(tmp_path: Path) -> None:
    written(tmp_path, [{"text": "a"}])
    with pytest.raises(DataError, match="no such file") as caught:
        read(tmp_path / "row.jsonl")
    assert caught.value.problems[0].nearest == (str(tmp_path / "rows.jsonl"),)


def test_a_folder_and_a_pattern_mean_their_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name, text in (("b.jsonl", "2"), ("a.jsonl", "1"), ("deep/c.jsonl", "3"), ("notes.txt", "4")):
        written(tmp_path, [{"text": text}], name)
    assert [row["text"] for row in read(tmp_path)] == ["1", "2", "3"]
    assert [row["text"] for row in read(f"{tmp_path}/*.jsonl")] == ["1", "2"]


EMPTY_HANDED = [("", r"has no file `\*\.jsonl`"), ("/*.jsonl", r"no file matches")]


@pytest.mark.parametrize(("ending", "text"), EMPTY_HANDED)
def test_a_folder_without_files_is_refused(tmp_path: Path, ending: str, text: str) -> None:
    with pytest.raises(DataError, match=text):
        read(f"{tmp_path}{ending}")


def test_the_second_file_must_have_the_columns_of_the_first(tmp_path: Path) -> None:
    written(tmp_path, [{"text": "a"}], "a.jsonl")
    second = written(tmp_path, [{"prompt": "a", "completion": "b"}], "b.jsonl")
    with pytest.raises(DataError, match=r"line 1 has `text`, `prompt`") as caught:
        read(tmp_path)
    assert str(second) in str(caught.value)


def test_more_rows_than_one_batch_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "BATCH", 3)
    rows = [{"text": str(i)} for i in range(10)]
    assert read(written(tmp_path, rows)) == rows


def test_a_file_is_parsed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, [{"text": "a"}])
    first = read(path)
    parsed: list[int] = []
    real = jsonl.Reader.batches
    monkeypatch.setattr(jsonl.Reader, "batches", lambda reader: parsed.append(1) or real(reader))
    assert (read(path), parsed) == (first, [])
    written(tmp_path, [{"text": "another"}])
    assert (read(path), parsed) == ([{"text": "another"}], [1])


def test_without_a_cache_folder_the_rows_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("MEMCFG_CACHE", str(blocked / "cache"))
    assert read(written(tmp_path, [{"text": "a"}])) == [{"text": "a"}]
    assert "kept in memory" in caplog.text


@pytest.mark.parametrize(("variables", "expected"), [
    ({"MEMCFG_CACHE": "/a/b"}, "/a/b"),
    ({"XDG_CACHE_HOME": "/c"}, "/c/memcfg"),
    ({"MEMCFG_CACHE": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b"),
])  # fmt: skip
def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str) -> None:
    for name in ("MEMCFG_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(arrowfile.folder()) == expected
