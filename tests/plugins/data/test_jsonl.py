"""JSON Lines: strings arrive untouched, and each fault is one message with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from memcfg_data import cache, hooks, jsonl

from memcfg import DataError


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


def read(path: Path | str) -> list[dict[str, Any]]:
    return list(hooks.jsonl_rows(str(path), "data.path"))


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
    ([{"body": "a", "id": 1}], r"line 1 has neither `text` nor `prompt` and `completion`; its columns: `body`, `id`"),
    ([{"text": "a"}, {"id": 1}], r"line 2 has no `text`; its columns: `id`"),
    ([{"prompt": "a"}], r"line 1 has no `completion`; its columns: `prompt`"),
    ([{"text": "a", "prompt": "b"}], r"line 1 has both `text` and `prompt`/`completion`"),
    ([{"text": "a"}, {"text": "b", "completion": "c"}], r"line 2 has both `text` and `prompt`/`completion`"),
    ([{"text": None}, {"text": None}], r"`text` is null in every row"),
    ([{"text": "a"}, {"text": None}, {"text": None}], r"`text` is null in 2 of 3 rows, first on line 2"),
    ([{"text": ""}, {"text": " \n"}], r"all 2 rows are empty: no row has any `text`"),
    ([{"prompt": "a", "completion": ""}], r"all 1 rows are empty"),
    ([3], r"line 1 is a number, not an object"),
    ([[{"text": "a"}]], r"line 1 is a list, not an object; a JSON array must be rewritten"),
    ('{"text": "a"}\n\n{"text": "b"\n', r"line 3 is not JSON: expecting ',' delimiter at column"),
    ('{"text": "a"}\n{"text": "b"} x\n', r"line 2 is not JSON: extra data at column 15"),
    (b'{"text": "a"}\n{"text": "\xff\xfe"}\n', r"line 2 is not UTF-8 \(byte 11\)"),
    ('{"text": "a"}\n{"text": "\\ud800"}\n', r"a string between lines 1 and 2 holds half of a surrogate pair"),
    ("[" * 100_000 + "\n", r"line 1 is not JSON"),
    ("\n \n", r"holds no rows, only blank lines"),
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


def test_a_file_that_is_not_there_names_its_neighbour(tmp_path: Path) -> None:
    written(tmp_path, [{"text": "a"}])
    with pytest.raises(DataError, match="no such file") as caught:
        read(tmp_path / "row.jsonl")
    assert caught.value.problems[0].nearest == (str(tmp_path / "rows.jsonl"),)


def test_a_folder_names_a_file_in_it(tmp_path: Path) -> None:
    written(tmp_path, [{"text": "a"}])
    with pytest.raises(DataError, match="is a folder, not a file") as caught:
        read(tmp_path)
    assert caught.value.problems[0].nearest == (f"data.path={tmp_path / 'rows.jsonl'}",)


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
    assert str(cache.folder()) == expected
