"""Each technique gives the loss and the gradients of the plain path: odd lengths, adapters, accumulation, packing."""

from __future__ import annotations

import json

import pytest
import torch

import memcfg
from memcfg.engine.build import build
from memcfg.engine.loader import MicroBatches, StepLoader
from memcfg.engine.update import gradients
from memcfg.registry import load

pytestmark = pytest.mark.torch

TEXTS = [
    "Return the sum of two numbers.", "x = 1", "def add(a, b):\n    return a + b", "A short line of text.",
    "Open the file, read every line, close the file again and return the lines that were read.", "import os",
]  # fmt: skip
SIZES = [
    "model.dtype=float32",
    "model.hidden=32",
    "model.heads=2",
    "model.kv_heads=1",
    "model.layers=3",
    "run.batch_size=3",
]
LORA = ["peft=lora", "peft.dropout=0.0", "peft.targets=all-linear", "peft.rank=3"]
NONE = ["checkpointing=none"]

TECHNIQUES: dict[str, list[str]] = {
    "inputs offloaded": ["offload=checkpoint_inputs", "offload.min_bytes=0"],
    "inputs offloaded, reentrant": ["offload=checkpoint_inputs", "checkpointing.reentrant=true"],
    "all offloaded": [*NONE, "offload=all", "offload.min_bytes=0", "offload.stash=1"],
    "all offloaded, checkpointed": ["offload=all", "offload.min_bytes=0"],
    "all on disk": [*NONE, "offload=disk"],
    "every second layer": ["checkpointing.every=2"],
    "attention kept": ["checkpointing=selective"],
    "pieces": ["mlp=tiled", "mlp.tiles=5"],
    "pieces, nothing checkpointed": [*NONE, "mlp=tiled", "mlp.tiles=3"],
    "pieces, all offloaded": [*NONE, "mlp=tiled", "mlp.tiles=4", "offload=all", "offload.min_bytes=0"],
    "pieces, attention kept": ["mlp=tiled", "mlp.tiles=2", "checkpointing=selective"],
}
SETTINGS: dict[str, list[str]] = {
    "full": [],
    "adapter, accumulation": [*LORA, "run.accumulation=2"],
    "packed": ["packing=bfd_split", "truncation.max_length=64"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    file = tmp_path_factory.mktemp("data") / "data.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 2))
    return ["data=jsonl", f"data.path={file}", *SIZES]


@pytest.fixture(autouse=True)
def _rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMCFG_OFFLOAD_REHEARSAL", "1")
    torch.set_num_threads(1)


def first_step(overrides: list[str]) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of the plan's first step. What an adapter adds is not zero."""
    plan = memcfg.resolve(overrides)
    run = build(plan, load().hooks(plan))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in run.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter.data, std=0.1, generator=generator)
    batches = MicroBatches(run.train, run.collator, run.layout, plan["run.batch_size"])
    loader = StepLoader(batches, accumulation=plan["run.accumulation"], seed=0)
    placed = [batch.to(plan.device) for batch in loader.at(0, 0)]
    result = gradients(run.model, placed, run.objective, contexts=run.contexts)
    return float(result.loss), {n: p.grad for n, p in run.model.named_parameters() if p.grad is not None}


PLAIN: dict[str, tuple[float, dict[str, torch.Tensor]]] = {}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_loss_and_gradients_are_those_of_the_plain_path(data: list[str], technique: str, setting: str) -> None:
    if setting not in PLAIN:
        PLAIN[setting] = first_step([*data, *NONE, *SETTINGS[setting]])
    loss, found = first_step([*data, *SETTINGS[setting], *TECHNIQUES[technique]])
    plain_loss, plain = PLAIN[setting]
    assert loss == pytest.approx(plain_loss, abs=1e-6)
    assert found.keys() == plain.keys()
    assert sum(bool(gradient.any()) for gradient in plain.values()) > 0.9 * len(plain)
    for name, gradient in plain.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=2e-6, msg=name)
