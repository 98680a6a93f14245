"""What is wrong with the data is found before anything heavy is imported."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from memcfg_data import downloaded, preflight

from memcfg import DataError

LOOK = """
import contextlib, io, json, sys
from memcfg.cli import main

found = []
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(words)
    found.append([code, said.getvalue(), "torch" in sys.modules])
print(json.dumps(found))
"""


def test_bad_data_ends_every_command_before_torch_is_loaded(light_python: str, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "other.jsonl").write_text('{"body": "a"}\n')
    (tmp_path / "good.jsonl").write_text('{"text": "a b c"}\n')
    cases = [
        (["--quiet", "data=jsonl", "data.path=none.jsonl"], "`data.path`: no such file: `none.jsonl`"),
        (["check", "data=jsonl", "data.path=empty.jsonl"], "`data.path`: `empty.jsonl` is empty"),
        (["lengths", "data=jsonl", "data.path=other.jsonl"], "`other.jsonl`: line 1 has neither `text`"),
        (["check", "data=jsonl", "data.path=good.jsonl", "data.eval_path=no.jsonl"], "`data.eval_path`: no such file"),
        (["check", "data=parquet", "data.path=good.jsonl"], "read with `data=jsonl`"),
        (["check", "data=hub", "data.path=acme/rows"], "is not in the cache of `datasets`"),
        (["check", "data.chat_template=none.jinja"], "`data.chat_template`: `none.jinja` is neither `plain`"),
    ]
    command = [light_python, "-c", LOOK, json.dumps([words for words, _ in cases])]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    for (words, text), (code, said, torch) in zip(cases, json.loads(ended.stdout), strict=True):
        assert (code, said.count("error:"), torch) == (1, 1, False), words
        assert text in said, words
    assert not (tmp_path / "runs").exists()


def test_what_can_be_skipped_is_no_fault_yet(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{\n{"text": "a"}\n')
    plan = {"data.source": "jsonl", "data.path": str(path)}
    with pytest.raises(DataError, match="line 1 is not JSON"):
        preflight.look(plan)
    preflight.look(plan | {"data.on_error": "skip"})


@pytest.mark.parametrize("folder", ["datasets/acme___my_rows", "hub/datasets--acme--MyRows"])
def test_what_was_downloaded_before_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("HF_DATASETS_CACHE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    assert not downloaded.there("acme/MyRows")
    (tmp_path / folder).mkdir(parents=True)
    assert downloaded.there("acme/MyRows")
    assert not downloaded.there("acme/rows")
