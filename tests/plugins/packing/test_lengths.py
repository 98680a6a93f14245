"""`memcfg lengths`: what it says of a data set follows from its lengths, and is right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memcfg_packing.lengths import command, measure
from memcfg_packing.lengths.pictures import page_of, png
from memcfg_packing.lengths.profile import Profile, profile
from memcfg_packing.lengths.text import show

from memcfg import RunError, cli

pytestmark = pytest.mark.torch


def of(lengths: list[int], **choices: Any) -> Profile:
    return profile(np.array(lengths, np.int64), **({"batch": 2} | choices))


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=200))
@settings(max_examples=60, deadline=None)
def test_everything_adds_up(lengths: list[int]) -> None:
    found = of(lengths)
    assert (found.documents, found.tokens) == (len(lengths), sum(lengths))
    assert sum(documents for _, _, documents, _ in found.bins) == len(lengths)
    assert sum(tokens for *_, tokens in found.bins) == sum(lengths)
    assert all(first <= last for first, last, *_ in found.bins)
    for c in found.candidates:
        assert c.truncated == sum(max(0, n - c.length) for n in lengths)
        assert c.cut == sum(n > c.length for n in lengths)
        assert 0 <= c.padding < 1
        kept = sum(lengths) - c.truncated
        assert c.packed["bfd"].fill == pytest.approx(kept / (c.packed["bfd"].rows * c.length))
        assert c.packed["bfd_split"].fill == pytest.approx(sum(lengths) / (c.packed["bfd_split"].rows * c.length))
    assert found.candidates[-1].cut == 0
    assert found.recommended in [c.length for c in found.candidates]


def test_padding_of_batches() -> None:
    assert of([10] * 8).candidates[0].padding == 0
    assert of([10, 20], batch=2).candidates[0].padding == pytest.approx(0.25)
    assert of([10, 20], batch=1).candidates[0].padding == 0


RECOMMENDED = [
    ([100] * 50, {}, 128, "it cuts nothing", "the shortest that holds everything"),
    ([100] * 995 + [1000] * 5, {}, 128, "0.50% of the documents", "few documents are longer, and few tokens lost"),
    (
        [100] * 995 + [4000] * 5,
        {},
        4096,
        "2,048 would cut 0.50% of the documents",
        "few are longer, but much would be lost",
    ),
    ([100] * 90 + [300] * 10, {}, 512, "256 would cut 10.00% of the documents", "many are longer"),
    ([1000] * 10, {"longest": 512}, 512, "the model takes no more tokens", "the model decides"),
]


@pytest.mark.parametrize(("lengths", "choices", "length", "reason", "because"), RECOMMENDED)
def test_what_is_recommended(lengths: list[int], choices: Any, length: int, reason: str, because: str) -> None:
    found = of(lengths, **choices)
    assert found.recommended == length, because
    assert reason in found.reason


def test_a_length_that_was_chosen_is_a_candidate() -> None:
    assert [c.length for c in of([10, 500], chosen=300).candidates] == [128, 256, 300, 512]
    assert [c.length for c in of([1]).candidates] == [1]


def test_what_was_written_in_a_row() -> None:
    row = {
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        "tools": [{"name": "c"}],
    }
    assert measure.texts(row) == ["a", "b"]
    assert measure.texts({"prompt": "p", "completion": "c"}) == ["p", "c"]


def test_lines_fit_a_terminal_and_the_page_needs_nothing_else(whole_page: Any) -> None:
    found = of(np.random.default_rng(0).lognormal(5, 1, 2000).astype(int).clip(1).tolist())
    assert all(len(line) <= 80 for line in show(found))
    costly = replace(
        found, candidates=[replace(c, memory=123 * 2**30) for c in found.candidates[:-1]] + found.candidates[-1:]
    )
    assert all(len(line) <= 80 for line in show(costly))
    page = whole_page(page_of(found))
    assert sum(text.startswith("documents by length") for text in page.labels("svg")) == 1
    assert len([text for text in page.texts("title") if "tokens: " in text]) == len(found.bins)
    assert f"truncation.max_length={found.recommended}" in page.texts("code")


def test_lines_fit_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = show(of([3, 50, 400, 9000], chosen=300))
    assert all(len(line) <= 40 for line in lines if "`" not in line)
    assert "  300" in lines
    assert any(line.startswith("    tokens lost ") for line in lines)


def test_a_picture() -> None:
    pytest.importorskip("matplotlib")
    assert png(of([3, 5, 9])).startswith(b"\x89PNG")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": "word " * n}) + "\n" for n in (1, 5, 40, 300)))
    words = ["data=jsonl", f"data.path={path}", "packing=bfd", "truncation.max_length=77"]
    assert command.main([*words, "--json", "--quiet", "--html", str(tmp_path / "page.html")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["documents"] == 4
    assert 77 in [c["length"] for c in said["candidates"]], "nothing was cut to the length that was asked for"
    assert said["quantiles"]["1"] > 77
    assert said["added"] == pytest.approx(1.0), "an end follows each text"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert cli.main(["lengths", "data=jsonl", "data.path=nowhere.jsonl", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


SMALL = ["model.layers=1", "model.hidden=32", "model.heads=2", "model.kv_heads=1"]


def test_the_predicted_peak_of_each_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from memcfg.compose import resolve
    from memcfg.compose.request import installed
    from memcfg.planner.predict import predict

    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": "word " * n}) + "\n" for n in (30, 5, 200)))
    words = ["data=jsonl", f"data.path={path}", *SMALL]
    assert command.main([*words, "--memory", "--json", "--quiet"]) == 0
    found = {c["length"]: c["memory"] for c in json.loads(capsys.readouterr().out)["candidates"]}
    assert list(found) == [128, 256]
    assert 0 < found[128] < found[256]
    plan = resolve([*words, "truncation.max_length=128"], registry=installed())
    assert found[128] == predict(plan, installed()).allocated_bytes


@pytest.mark.parametrize("never", [False, True])
def test_a_length_that_cannot_be_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], never: bool
) -> None:
    def predict(plan: Any, registry: Any) -> Any:
        if never or plan["truncation.max_length"] == 256:
            raise RunError("too long to say")
        return SimpleNamespace(allocated_bytes=5 * 2**20)

    monkeypatch.setattr("memcfg.planner.predict.predict", predict)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": "word " * n}) + "\n" for n in (30, 5, 200)))
    words = ["data=jsonl", f"data.path={path}", *SMALL, "--memory"]
    if never:
        with pytest.raises(RunError, match="too long to say"):
            command.main(words)
        return
    assert command.main(words) == 0
    said = capsys.readouterr()
    assert "no peak for a length of 256: too long to say" in said.err
    peaks = {line.split()[0]: line.split()[-2:] for line in said.out.splitlines() if "%" in line and "MiB" in line}
    assert peaks == {"128": ["5", "MiB"]}
    (other,) = [line for line in said.out.splitlines() if line.strip("* ").startswith("256 ")]
    assert other.endswith(" -")
