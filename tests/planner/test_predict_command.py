"""`memcfg predict` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcfg.cli import main

pytestmark = pytest.mark.torch

TINY = ("truncation.max_length=64", "model.hidden=64")
H100 = "assume.device=h100"


def predicted(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["predict", "--json", "--quiet", *words])
    return code, json.loads(capsys.readouterr().out)


def test_what_json_holds(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = predicted(capsys, H100, *TINY)
    assert code == 0
    assert data["ok"] is True
    assert data["fits"] is True
    assert data["budget_bytes"] == 81559 * 2**20
    assert 0 < data["kinds"]["weights"] < data["allocated_bytes"] <= data["smallest_bytes"] <= data["reserved_bytes"]
    assert sum(data["kinds"].values()) <= data["allocated_bytes"]
    assert set(data["phases"]) == {"load", "input", "forward", "loss", "backward", "optimizer"}
    assert max(data["phases"].values()) == data["allocated_bytes"]
    assert data["step_ms"] > 0


def test_a_trainer_that_samples_says_for_what_it_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("trainer=grpo", "run.batch_size=8", "generation.max_prompt_tokens=16", "generation.max_new_tokens=8", H100)
    assert main(["predict", "--quiet", *words]) == 0
    out = capsys.readouterr().out
    assert (
        "reckoned with\n"
        "  8 completions sampled at a time, none of which ends before 8 tokens\n"
        "  (`generation.max_new_tokens`), of prompts of 16 tokens\n"
        "  (`generation.max_prompt_tokens`)\n"
    ) in out
    _, data = predicted(capsys, *words)
    assert set(data["phases"]) > {"generation", "scoring", "backward"}
    assert len(data["assumed"]) == 1


def test_exit_codes_follow_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    _, data = predicted(capsys, H100, *TINY)
    needed = data["needed_bytes"]
    assert predicted(capsys, H100, *TINY, f"budget={int(needed * 1.05)}")[0] == 0
    assert predicted(capsys, H100, *TINY, f"budget={int(needed * 0.95)}")[0] == 1
    code, close = predicted(capsys, H100, *TINY, f"budget={needed}")
    assert (code, close["fits"], close["verdict"]) == (2, None, "close")


def test_the_table_and_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], whole_page: Any) -> None:
    pytest.importorskip("matplotlib")
    html, png = tmp_path / "memory.html", tmp_path / "memory.png"
    code = main(["predict", H100, *TINY, "budget=700mib", "--html", str(html), "--png", str(png)])
    out = capsys.readouterr().out
    assert code == 1
    assert "at the peak" in out
    assert "live memory through one step" in out
    assert "too large" in out
    page = whole_page(html.read_text(encoding="utf-8"))
    assert {"Live memory through one step", "Peak in each phase"} < set(page.texts("h2"))
    assert page.count("polygon") > 3
    assert png.read_bytes().startswith(b"\x89PNG")
    assert max(len(line) for line in out.splitlines()) <= 80


def test_a_second_time_is_read_not_simulated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = predicted(capsys, H100, *TINY)[1]

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("simulated again")

    monkeypatch.setattr("memcfg.planner.simulate.record", refuse)
    assert predicted(capsys, H100, *TINY)[1] == first


def test_a_cpu_host_has_no_allocator(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = predicted(capsys, *TINY, "assume.device=cpu")
    assert (code, data["budget_bytes"], data["fits"]) == (0, None, None)
    assert data["allocated_bytes"] == data["reserved_bytes"] == data["needed_bytes"]


def saved(folder: Path, text: str) -> str:
    (folder / "config.json").write_text(text, encoding="utf-8")
    return f"model.path={folder}"


LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500,
}  # fmt: skip


def test_a_configuration_alone_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, json.dumps(LLAMA))
    code, data = predicted(capsys, H100, "model=hub", path, "truncation.max_length=64")
    assert code == 0
    assert data["parameters"] == 2 * 500 * 64 + 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64) + 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("{}", "names no `model_type`"),
        ('{"model_type": "nothing_known", "vocab_size": 9}', "nothing_known"),
        ('{"model_type": "llama", "hidden_size": "big"}', "Field 'hidden_size' expected int, got str (value: 'big')"),
        ('{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 5}', "hidden size (64) is not a multiple"),
        ('{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 0}', "cannot be loaded: "),
        ("[1, 2]", "names no `model_type`"),
        ("null", "names no `model_type`"),
        ('{"model_type": "llama", "vocab_size": 0}', "is 0, and a model has at least one"),
        ('{"model_type": "llama", "num_hidden_layers": -2}', "is -2, and a model has at least one"),
    ],
)
def test_configurations_that_say_nothing(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = "checkpointing=none"  # a rule refuses checkpoints of no layers before anybody reads the file
    code, data = predicted(capsys, H100, "model=hub", saved(tmp_path, text), "truncation.max_length=64", every)
    assert code == 2, "1 would say that it does not fit"
    assert said in json.dumps(data["errors"])


def test_the_default_attention_of_a_model_with_dropout_drops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, '{"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 4, "vocab_size": 500}')
    words = ("predict", "--quiet", H100, "model=hub", path, "truncation.max_length=64", "packing=bfd")
    assert main([*words, "attention=varlen"]) == 2
    assert "`attention.kernel.dropout` forbids" in capsys.readouterr().err
    assert main([*words]) == 0


def test_a_fault_is_no_verdict(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("memcfg.planner.predict.predict", fails)
    assert main(["predict", "--quiet", H100, *TINY]) == 2
    assert "unexpected ZeroDivisionError" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--quiet", H100, *TINY, "--html", str(tmp_path)]) == 2
    assert "is a directory" in " ".join(capsys.readouterr().err.split())


def test_a_budget_below_the_weights_alone_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(
        ["predict", H100, "model=shape", "model.preset=smollm2-135m", "truncation.max_length=64", "budget=900mib"]
    )
    assert code == 1
    assert "the weights alone take" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("budget=0",), "nothing fits into `0`"),
        (("budget=24g",), "ambiguous"),
        (("assume.device=h10",), "assume.device=h100"),
        (("budget=rtx409",), "budget.bytes=rtx4090"),
        (("truncation=none",), "without a longest row"),
        (("model=shape",), "model.preset"),
        (("model=shape", "model.preset=qwen3-9b"), "qwen3-8b"),
    ],
)
def test_bad_input_is_explained(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    card = () if any(word.startswith("assume") for word in words) else (H100,)
    assert main(["predict", "--quiet", *card, *words]) == 2
    assert said in capsys.readouterr().err
