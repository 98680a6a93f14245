"""Saved models: what loads, and the one clear error for each thing that can be wrong with a folder."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from memcfg_model.hooks import memcfg_load_model, memcfg_load_tokenizer
from memcfg_model.tiny import tokenizer
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from memcfg import Decision, Plan, RunError
from memcfg.planner.config import fetch

pytestmark = pytest.mark.torch


def plan(path: Path | str, **settings) -> Plan:
    values = {
        "model.source": "hub", "model.path": str(path), "model.dtype": "float32", "model.trust_remote_code": False,
        **settings,
    }  # fmt: skip
    return Plan({key: Decision(value, "default") for key, value in values.items()})


@pytest.fixture(scope="module")
def master(tmp_path_factory) -> Path:
    """A saved model of several weight files, in bfloat16."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2048, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="150KB")
    tokenizer().save_pretrained(folder)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    return folder


@pytest.fixture
def folder(master, tmp_path) -> Path:
    return Path(shutil.copytree(master, tmp_path / "model"))


@pytest.mark.parametrize(
    ("asked", "got"), [("float32", torch.float32), ("bfloat16", torch.bfloat16), ("auto", torch.bfloat16)]
)
def test_a_folder_loads_in_the_dtype_asked_for(folder, asked, got):
    model = memcfg_load_model(plan(folder, **{"model.dtype": asked}), "cpu")
    assert model.dtype == got
    assert model.training
    assert len(memcfg_load_tokenizer(plan(folder))) == 2048


def test_on_meta_only_the_shape_is_read(folder):
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    model = memcfg_load_model(plan(folder), "meta")
    assert all(p.is_meta for p in model.parameters())


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def without_a_shard(folder: Path) -> None:
    next(iter(sorted(folder.glob("model-*.safetensors")))).unlink()


def without_weights(folder: Path) -> None:
    for weights in folder.glob("model*"):
        weights.unlink()


def with_a_cut_shard(folder: Path) -> None:
    shard = next(iter(sorted(folder.glob("model-*.safetensors"))))
    shard.write_bytes(shard.read_bytes()[:100])


def with_a_broken_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{")


def an_adapter_alone(folder: Path) -> None:
    without_config(folder)
    (folder / "adapter_config.json").write_text("{}")


def without_a_head(folder: Path) -> None:
    """As a backbone saved alone leaves it."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shard = folder / index["weight_map"]["lm_head.weight"]
    weights = load_file(shard)
    del weights["lm_head.weight"]
    save_file(weights, shard, metadata={"format": "pt"})


def with_an_unknown_type(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "never_heard_of"}))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (without_config, "holds no `config.json`"),
        (an_adapter_alone, "holds an adapter, and not the model that it belongs to"),
        (without_a_shard, r"lacks 1 of the weight files that its index names: model-0"),
        (without_weights, "holds no weights"),
        (with_a_cut_shard, r"the model of .* cannot be loaded"),
        (with_a_broken_index, "is no index of weights"),
        (without_a_head, r"lack 1 of the model's weights: `lm_head.weight`"),
        (with_an_unknown_type, r"cannot be loaded: .*never_heard_of"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_in_one_error(folder, break_it, message):
    break_it(folder)
    with pytest.raises(RunError, match=message) as caught:
        memcfg_load_model(plan(folder), "cpu")
    assert caught.value.problems[0].key == "model.path"
    assert "\n" not in caught.value.problems[0].text


def test_a_folder_without_a_tokenizer_is_refused(folder):
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(RunError, match=r"the tokenizer of .* cannot be loaded"):
        memcfg_load_tokenizer(plan(folder))


@pytest.mark.parametrize("path", ["/no/such/folder", "./no/such", "~/no-such", "a/b/c", "a\\b"])
def test_a_folder_that_is_not_there_is_not_taken_for_a_hub_id(path):
    said = re.escape(f"`model.path`: no such folder `{path}`")
    with pytest.raises(RunError, match=said):
        memcfg_load_model(plan(path), "cpu")
    with pytest.raises(RunError, match=said):
        fetch({"model.path": path})


def test_a_file_is_not_a_folder(folder):
    with pytest.raises(RunError, match="is a file"):
        memcfg_load_model(plan(folder / "config.json"), "cpu")


def test_a_hub_id_without_a_network_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(RunError, match="the model of `no-such-org/no-such-model` cannot be loaded") as caught:
        memcfg_load_model(plan("no-such-org/no-such-model"), "cpu")
    assert "network" in caught.value.problems[0].fix
