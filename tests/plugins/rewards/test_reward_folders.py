"""What is said of a folder that holds no reward model, before anything heavy is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from memcfg_rewards.folders import check, labels, look

from memcfg import RunError

LLAMA = {"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]}
ONE = {"id2label": {"0": "LABEL_0"}}


def folder(at: Path, config: Any, *files: str) -> str:
    at.mkdir(exist_ok=True)
    (at / "config.json").write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    for name in files:
        (at / name).write_bytes(b"")
    return str(at)


@pytest.mark.parametrize(
    ("config", "files", "said"),
    [
        (
            {"architectures": ["LlamaForCausalLM"]}, ["model.safetensors"],
            "`rewards.models`: `{at}` holds a `LlamaForCausalLM`, and a reward model is a sequence classifier "
            "(`...ForSequenceClassification`)\n  train one: python -m memcfg trainer=reward",
        ),
        (
            LLAMA, ["model.safetensors"],
            "`rewards.models`: the sequence classifier in `{at}` has 2 labels, and a reward is one number\n"
            "  take one that was made with `num_labels=1`",
        ),
        (LLAMA | ONE, [], "`rewards.models`: `{at}` holds no weights (`model.safetensors`)"),
        (
            "{", ["model.safetensors"],
            "`rewards.models`: `{at}/config.json` is no configuration of a model: Expecting property name enclosed in "
            "double quotes: line 1 column 2 (char 1)",
        ),
    ],
)  # fmt: skip
def test_what_is_no_reward_model_is_refused(tmp_path: Path, config: Any, files: list[str], said: str) -> None:
    at = folder(tmp_path / "judge", config, *files)
    with pytest.raises(RunError) as caught:
        look({"rewards.models": [at]})
    assert str(caught.value) == said.replace("{at}", at)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        look({"rewards.models": [f"{tmp_path}/gone"]})
    assert str(caught.value) == f"`rewards.models`: no such folder `{tmp_path}/gone`"
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"holds no `config\.json`, so no saved model"):
        look({"rewards.models": [f"{tmp_path}/empty"]})


def test_a_reward_model_passes(tmp_path: Path) -> None:
    assert check(folder(tmp_path / "judge", LLAMA | ONE, "model.safetensors")) == str(tmp_path / "judge")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["judges/helpful"], ["helpful"]),
        (["/a/b/helpful", "/a/c/helpful"], ["b/helpful", "c/helpful"]),
        (["runs/judge/model"], ["judge/model"]),
        (["runs/one/model", "runs/two/model", "x"], ["one/model", "two/model", "x"]),
        (["model"], ["model"]),
    ],
)
def test_figures_call_them_by_the_end_of_their_path(paths: list[str], expected: list[str]) -> None:
    assert labels(paths) == expected
