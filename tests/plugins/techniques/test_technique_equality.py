"""Each technique gives the loss and the gradients of the plain path: odd lengths, adapters, accumulation, packing."""

from __future__ import annotations

import pytest
import torch

from memcfg.testing import Update, assert_same_training, first_update

pytestmark = pytest.mark.torch

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


@pytest.fixture(autouse=True)
def _rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMCFG_OFFLOAD_REHEARSAL", "1")
    torch.set_num_threads(1)


PLAIN: dict[str, Update] = {}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_loss_and_gradients_are_those_of_the_plain_path(technique: str, setting: str) -> None:
    if setting not in PLAIN:
        PLAIN[setting] = first_update([*NONE, *SETTINGS[setting]])
    assert_same_training([*SETTINGS[setting], *TECHNIQUES[technique]], PLAIN[setting])
