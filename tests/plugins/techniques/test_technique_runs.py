"""Each technique trains through the engine, says what it did, and what it did is what was planned."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest
import torch

import memcfg
from memcfg import ConflictError, RequestError
from memcfg.engine.checking import check
from memcfg.engine.execute import train
from memcfg.registry import load

pytestmark = pytest.mark.torch

TEXTS = [
    "Return the sum of two numbers.", "x = 1", "def add(a, b):\n    return a + b", "A short line of text.",
    "Open the file, read every line, close the file again and return the lines that were read.", "import os",
]  # fmt: skip
SIZES = [
    "model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.layers=2", "run.batch_size=12", "run.steps=3",
    "run.log_steps=1", "run.learning_rate=1e-2", "run.scheduler=constant",
]  # fmt: skip

RUNS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "lora": (["peft=lora"], {"peft.method": "lora", "peft.dtype": "float32"}),
    "lora on all layers, packed": (["peft=lora", "peft.targets=all-linear", "packing=bfd_split"], {"peft.method": "lora"}),
    "dora": (["peft=lora", "peft.dora=true"], {"peft.method": "lora"}),
    "prompt": (["peft=prompt"], {"peft.method": "prompt"}),
    "prefix": (["peft=prefix"], {"peft.method": "prefix", "checkpointing.mode": "none"}),
    "nf4": (["quantization=nf4", "peft=lora"], {"quantization.mode": "nf4", "peft.dtype": "bfloat16"}),
    "int8": (["quantization=int8", "peft=lora"], {"quantization.mode": "int8"}),
    "offload": (["offload=checkpoint_inputs"], {"offload.activations": "checkpoint_inputs"}),
    "offload all": (["offload=all", "checkpointing=none"], {"offload.activations": "all"}),
    "every second": (["checkpointing.every=2"], {"checkpointing.mode": "full"}),
    "selective": (["checkpointing=selective"], {"checkpointing.mode": "selective"}),
    "pieces": (["mlp=tiled", "mlp.tiles=3"], {"mlp.mode": "tiled"}),
    "8 bits": (["optimizer=adamw_8bit"], {"optimizer.name": "adamw_8bit"}),
    "paged": (["optimizer=paged"], {"optimizer.name": "paged_adamw_8bit"}),
    "lion": (["optimizer=lion_8bit"], {"optimizer.name": "lion_8bit", "optimizer.betas": [0.9, 0.99]}),
    "adafactor": (["optimizer=adafactor"], {"optimizer.name": "adafactor"}),
    "bf16 states": (["optimizer=adamw_bf16", "model.dtype=bfloat16"], {"optimizer.name": "adamw_bf16"}),
    "states on the host": (["optimizer=adamw_offload"], {"optimizer.name": "adamw_offload"}),
    "in the backward pass": (["optimizer=in_backward"], {"optimizer.in_backward": True}),
    "many": (
        ["peft=lora", "offload=all", "mlp=tiled", "mlp.tiles=2", "checkpointing=selective", "packing=bfd", "run.accumulation=2"],
        {"peft.method": "lora", "offload.activations": "all", "mlp.mode": "tiled", "checkpointing.mode": "selective"},
    ),
}  # fmt: skip
NEEDS = {"nf4", "int8", "8 bits", "paged", "lion"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    file = tmp_path_factory.mktemp("rows") / "data.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 2))
    return ["data=jsonl", f"data.path={file}", *SIZES]


@pytest.fixture(autouse=True)
def _rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMCFG_OFFLOAD_REHEARSAL", "1")
    torch.set_num_threads(1)


@pytest.mark.parametrize("run", RUNS)
def test_it_trains_and_did_what_was_planned(data: list[str], run: str, tmp_path: Any) -> None:
    if run in NEEDS and find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed")
    asked, effective = RUNS[run]
    plan = memcfg.resolve([*data, *asked])
    report = train(plan, load().hooks(plan), tmp_path / "run")
    assert report.loss_last < report.loss_first
    found = json.loads((tmp_path / "run" / "effective.json").read_text())
    assert {key: found[key]["effective"] for key in effective} == effective
    assert all(entry["evidence"] for entry in found.values())


@pytest.mark.parametrize("run", ["lora", "offload", "many", "in the backward pass"])
def test_check_sees_the_same_without_training(data: list[str], run: str) -> None:
    asked, effective = RUNS[run]
    plan = memcfg.resolve([*data, *asked])
    seen = check(plan, load().hooks(plan))
    assert {key: seen.effective[key]["effective"] for key in effective} == effective
    assert {"supervised", "isolation", "accumulation", "optimizer"} <= set(seen.canaries)
    assert seen.loss > 0
    assert seen.peak_bytes > 0


def test_what_is_saved_is_the_trained_model(data: list[str], tmp_path: Any) -> None:
    from transformers import AutoModelForCausalLM

    plan = memcfg.resolve([*data, "peft=lora", "peft.targets=all-linear", "peft.dropout=0.0"])
    report = train(plan, load().hooks(plan), tmp_path / "run")
    loaded = AutoModelForCausalLM.from_pretrained(report.model_dir).eval()
    hooks = load().hooks(plan)
    base = hooks.load_model(plan=plan, device="cpu").eval()
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert float((loaded(ids).logits - base(ids).logits).abs().max()) > 1e-3
    assert not [name for name in loaded.state_dict() if "lora" in name]


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        (["peft=lora", "peft.rank=0"], "peft.rank"),
        (["peft=lora", "peft.rank=-3"], "peft.rank"),
        (["offload=all", "offload.stash=0"], "offload.stash"),
        (["mlp=tiled", "mlp.tiles=0"], "mlp.tiles"),
        (["checkpointing.every=0"], "checkpointing.every"),
        (["optimizer=adam8bit"], "optimizer"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(data: list[str], asked: list[str], key: str) -> None:
    with pytest.raises(RequestError) as caught:
        memcfg.resolve([*data, *asked])
    assert any(key in str(problem) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (["mlp=tiled", "mlp.tiles=2000"], "mlp.tiles.length"),
        (["quantization=nf4"], "quantization.mode.adapter"),
        (["offload=checkpoint_inputs", "checkpointing=none"], "offload.checkpoint_inputs.none"),
        (["optimizer=in_backward", "run.max_grad_norm=1.0"], "optimizer.in_backward.clipping"),
        (["optimizer=adamw_8bit", "assume.quantization.installed=false"], "optimizer.package.installed"),
        (["offload=all", "assume.offload.rehearsal=false"], "offload.device.accelerator"),
        (["allocator=expandable"], "allocator.expandable.cuda"),
    ],
)
def test_what_cannot_be_is_a_conflict_before_anything_is_loaded(data: list[str], asked: list[str], rule: str) -> None:
    with pytest.raises(ConflictError) as caught:
        memcfg.resolve([*data, *asked])
    assert any(rule in conflict.rules for conflict in caught.value.conflicts)
