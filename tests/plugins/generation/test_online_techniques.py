"""Under checkpointing, activation offload and adapters every online trainer samples, learns and moves as on the plain path, and
says what is in force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import memcfg
from memcfg.engine.build import Run, build
from memcfg.engine.evidence import compare, gather
from memcfg.engine.rollouts import Place, RolloutLoader
from memcfg.engine.update import gradients, step
from memcfg.registry import load
from memcfg.testing import Update, assert_same_training

pytestmark = pytest.mark.torch

TRAINERS = {
    "grpo": ["grpo.num_generations=4", "grpo.beta=0.05", "grpo.entropy_coef=0.01"],
    "rloo": ["rloo.num_generations=4", "rloo.beta=0.05"],
    "online_dpo": [],
}  # fmt: skip
SETTINGS = {
    "whole": [],
    "adapter": ["peft=lora", "peft.dropout=0.0", "peft.targets=all-linear", "peft.rank=3", "peft.alpha=64"],
}
NONE = ["checkpointing=none"]
ALL = ["offload=all", "offload.min_bytes=0"]
TECHNIQUES: dict[str, list[str]] = {
    "checkpointed": ["checkpointing=full"],
    "attention kept, all offloaded": ["checkpointing=selective", *ALL],
    "all offloaded": [*NONE, *ALL, "offload.stash=1"],
    "inputs offloaded": ["checkpointing=full", "offload=checkpoint_inputs", "offload.min_bytes=0"],
}
SHOWN = ("checkpointing.mode", "offload.activations", "peft.method", "trainer.name", "generation.backend")
SMALL = [
    "model.dtype=float32", "model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.layers=2", "run.batch_size=4",
    "run.accumulation=2", "run.learning_rate=1e-2", "data=jsonl", "generation.max_new_tokens=7", "rewards.functions=[kinds]",
]  # fmt: skip


def built(folder: Path, *overrides: str) -> Run:
    file = folder / "prompts.jsonl"
    kinds = ["vowels", "digits", "capitals", "marks"]
    rows = [{"prompt": f"Write {kinds[i % 4]}{' now' * i}.\n", "wanted": kinds[i % 4]} for i in range(8)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    plan = memcfg.resolve([*SMALL, f"data.path={file}", *overrides])
    return build(plan, load().hooks(plan))


def two_steps(run: Run) -> tuple[list[Update], list[Any]]:
    """Two rounds of sampling and two updates: the second round is sampled by what the first update made of the model."""
    for name, parameter in run.model.named_parameters():
        if "lora_B" in name:  # an adapter that starts at zero would give its other half no gradient
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(len(name)))
    steps = rounds(run)
    found: list[Update] = []
    tokens: list[Any] = []
    for batches in (next(steps), next(steps)):
        run.first = run.first or batches
        result = gradients(run.model, batches, run.objective, contexts=run.contexts)
        named = dict(run.model.named_parameters())
        learned = {name: p.grad.clone() for name, p in named.items() if p.grad is not None}
        norm = step(run.model, run.optimizer, max_grad_norm=1.0)
        weights = {name: p.detach().clone() for name, p in named.items()}
        found.append(Update(float(result.loss), learned, weights, float(norm)))
        tokens.append([batch.input_ids.tolist() for batch in batches])
    return found, tokens


def rounds(run: Run) -> Any:
    from memcfg.engine.loader import MicroBatches

    assert run.collator is not None
    run.model.train()
    batches = MicroBatches(run.train, run.collator, run.layout, run.plan["run.batch_size"])
    return iter(RolloutLoader(run, batches, Place(lambda: run.model, lambda: run.optimizer, "cpu")))


PLAIN: dict[tuple[str, str], Any] = {}


CASES = [
    *(("grpo", setting, technique) for setting in SETTINGS for technique in TECHNIQUES),
    *((trainer, "whole", "all offloaded") for trainer in ("rloo", "online_dpo")),
    *((trainer, "adapter", "inputs offloaded") for trainer in ("rloo", "online_dpo")),
]


@pytest.mark.parametrize(("trainer", "setting", "technique"), CASES)
def test_two_steps_are_those_of_the_plain_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str, setting: str, technique: str
) -> None:
    monkeypatch.setenv("MEMCFG_OFFLOAD_REHEARSAL", "1")
    torch.set_num_threads(1)
    asked = [f"trainer={trainer}", *TRAINERS[trainer], *SETTINGS[setting]]
    if (trainer, setting) not in PLAIN:
        PLAIN[trainer, setting] = two_steps(built(tmp_path, *asked, *NONE))
    run = built(tmp_path, *asked, *TECHNIQUES[technique])
    (first, second), tokens = two_steps(run)
    (plain, later), expected = PLAIN[trainer, setting]
    assert_same_training(first, plain, weights=True)
    assert tokens == expected
    assert_same_training(second, later, weights=True)
    seen = gather(run)
    compare(run.plan, seen)
    shown = {e.key: e.effective for e in seen if e.key in SHOWN}
    assert shown == {key: run.plan[key] for key in SHOWN if key in shown}
    wanted = {"checkpointing.mode", "trainer.name", "generation.backend"}
    wanted |= {"offload.activations"} if "offloaded" in technique else set()
    wanted |= {"peft.method"} if setting == "adapter" else set()
    assert wanted <= shown.keys()
