"""What a model is, read without importing anything heavy."""

import json
import subprocess
import sys

import pytest
from memcfg_model.dropout import DEFAULTS, drops
from memcfg_model.facts import attention_dropout, config_file, fetched_dropout, fetched_type, model_type
from memcfg_model.types import MODEL_TYPES

from memcfg import PENDING, RunError


@pytest.fixture
def saved(tmp_path):
    def save(text: str) -> dict[str, str]:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
        return {"model.source": "hub", "model.path": str(tmp_path)}

    return save


@pytest.mark.parametrize(
    ("choices", "kind", "because"),
    [
        ({}, "qwen3", "the tiny model is the default"),
        ({"model.source": "tiny"}, "qwen3", "and has the shape of Qwen3"),
        ({"model.source": "hub", "model.path": "some-org/some-model"}, PENDING, "only the network can tell"),
        ({"model.source": "hub", "model.path": "/no/such/folder"}, PENDING, "loading it says what is wrong"),
        ({"model.source": "hub"}, PENDING, "no model is named"),
        ({"model.source": "acme"}, PENDING, "a third party's source has its own ways"),
    ],
)
def test_the_type_follows_from_the_request(choices, kind, because):
    assert model_type(choices) == kind, because


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (json.dumps({"model_type": "gemma2"}), "gemma2"),
        (json.dumps({"model_type": "never_heard_of"}), "other"),
        (json.dumps({}), PENDING),
        (json.dumps([1]), PENDING),
        ("{", PENDING),
    ],
)
def test_a_saved_model_says_its_type_in_its_configuration(saved, text, kind):
    assert model_type(saved(text)) == kind


def test_a_downloaded_model_is_known_without_the_network(tmp_path, monkeypatch):
    folder = tmp_path / "models--some-org--some-model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "config.json").write_text('{"model_type": "llama"}')
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert model_type({"model.source": "hub", "model.path": "some-org/some-model"}) == "llama"
    assert config_file("some-org/another") is None


def test_types_are_listed_once():
    assert len(set(MODEL_TYPES)) == len(MODEL_TYPES)
    assert {"llama", "qwen3", "gemma3_text", "mistral", "other"} <= set(MODEL_TYPES)


def test_declarations_import_nothing_heavy():
    plugins = ", ".join(f"memcfg_{name}" for name in ("model", "attention", "padding", "padding_free", "loss"))
    code = f"import sys, {plugins}; print(*{{'torch', 'transformers', 'datasets', 'hydra'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_type_that_has_to_be_fetched(saved, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetched_type(saved('{"model_type": "llama"}')) == "llama"
    with pytest.raises(RunError, match="the configuration of `some-org/no-such-model` cannot be had"):
        fetched_type({"model.source": "hub", "model.path": "some-org/no-such-model"})


@pytest.mark.parametrize(
    ("config", "dropped", "because"),
    [
        ({"model_type": "llama"}, False, "nothing is said, and Llama has none"),
        ({"model_type": "llama", "attention_dropout": 0.1}, True, "its configuration says so"),
        ({"model_type": "seed_oss"}, True, "Seed-OSS has one unless told otherwise"),
        ({"model_type": "seed_oss", "attention_dropout": 0.0}, False, "and was told otherwise"),
        ({"model_type": "gpt2", "attn_pdrop": 0.1, "resid_pdrop": 0.1}, True, "GPT-2's name for it"),
        ({"model_type": "gpt2", "attn_pdrop": 0.0, "resid_pdrop": 0.1}, False, "another dropout than attention's"),
        ({"model_type": "opt", "dropout": 0.1, "attention_dropout": 0.0}, False, "another dropout than attention's"),
        ({"model_type": "mllama", "text_config": {"dropout": 0.1}}, True, "there it is attention's"),
        (
            {"model_type": "gemma3", "text_config": {"attention_dropout": 0.2}},
            True,
            "said of the language model inside",
        ),
        ({"model_type": "mpt", "attn_config": {"attn_pdrop": 0.1}}, True, "said of its attention"),
        ({"model_type": "llama", "attention_dropout": None}, False, "nothing is no rate"),
    ],
)
def test_attention_dropout_is_read_from_the_configuration(saved, config, dropped, because):
    choices = saved(json.dumps(config))
    assert attention_dropout(choices) is dropped, because
    assert fetched_dropout(choices) is dropped


def test_attention_dropout_of_what_is_no_saved_model(saved):
    assert attention_dropout({}) is False
    assert attention_dropout({"model.source": "shape", "model.preset": "qwen3-8b"}) is False
    assert attention_dropout({"model.source": "hub", "model.path": "some-org/some-model"}) is PENDING
    assert attention_dropout(saved("{")) is PENDING


@pytest.mark.torch
def test_the_defaults_of_transformers_are_the_ones_listed():
    """Read off its own configurations: each type without a word in its file, and with every name for the rate at zero."""
    from transformers import CONFIG_MAPPING

    known = [kind for kind in MODEL_TYPES if kind in CONFIG_MAPPING and kind != "gemma4_assistant"]
    dropping = {kind for kind in known if drops(CONFIG_MAPPING[kind]().to_dict() | {"model_type": kind})}
    assert dropping == DEFAULTS
