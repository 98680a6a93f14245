"""Whole runs of the trainers that learn from their own completions: under techniques, over several updates, and on again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import memcfg
from memcfg import ConflictError, DataError, RunError
from memcfg.engine.build import build
from memcfg.engine.evidence import gather
from memcfg.engine.execute import train
from memcfg.registry import load

pytestmark = pytest.mark.torch

SMALL = [
    "model.hidden=32", "model.layers=2", "run.steps=2", "run.batch_size=4", "run.log_steps=1", "data=jsonl",
    "generation.max_new_tokens=5", "rewards.functions=[kinds,finished]", "rewards.weights=[1.0,0.5]",
]  # fmt: skip
GROUPS = {"grpo": ["grpo.num_generations=2"], "rloo": ["rloo.num_generations=2"], "online_dpo": []}


def prompts(folder: Path, **more: Any) -> str:
    """A file of prompts of different lengths."""
    file = folder / "prompts.jsonl"
    kinds = ["vowels", "digits", "capitals", "marks"]
    rows = [{"prompt": f"Write {kinds[i % 4]}{' now' * i}.\n", "wanted": kinds[i % 4]} | more for i in range(8)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return f"data.path={file}"


class Told:
    """What a run says."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def ran(
    folder: Path, trainer: str, *overrides: str, path: str | None = None, told: Told | None = None, name: str = "run"
) -> list[dict[str, Any]]:
    """The lines of metrics."""
    torch.set_num_threads(1)
    asked = [f"trainer={trainer}", *GROUPS[trainer], *SMALL, path or prompts(folder), *overrides]
    plan = memcfg.resolve(asked)
    train(plan, load().hooks(plan), folder / name, reporter=told or Told())  # type: ignore[arg-type]
    return lines(folder / name / "metrics.jsonl")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("trainer", ["grpo", "rloo", "online_dpo"])
def test_each_trainer_says_what_it_sampled_and_learned(tmp_path: Path, trainer: str) -> None:
    beta = [] if trainer == "online_dpo" else [f"{trainer}.beta=0.05"]
    found = ran(tmp_path, trainer, *beta, "data.eval_rows=2")
    assert {
        "reward", "reward_std", "rewards/kinds/mean", "rewards/kinds/std", "rewards/finished/mean", "frac_reward_zero_std",
        "completions/mean_length", "completions/min", "completions/max", "completions/truncated", "kl", "entropy",
        "sampling_seconds", "grad_norm",
    } <= found[-1].keys()  # fmt: skip
    assert {"eval_reward", "eval_entropy", "eval_completions/max"} <= found[-1].keys()
    assert 1 <= found[-1]["completions/min"] <= found[-1]["completions/max"] <= 5
    shown = lines(tmp_path / "run" / "completions.jsonl")
    assert {line["step"] for line in shown} == {1, 2}
    assert shown[0].keys() == {"step", "prompt", "completion", "tokens", "finished", "rewards", "reward"}
    assert all(
        line["reward"] == pytest.approx(line["rewards"]["kinds"] + 0.5 * line["rewards"]["finished"]) for line in shown
    )
    effective = json.loads((tmp_path / "run" / "effective.json").read_text())
    assert effective["trainer.name"]["effective"] == trainer
    assert effective["generation.backend"]["effective"] == "transformers"
    assert effective["rewards.functions"]["effective"] == ["kinds", "finished"]


def test_techniques_change_neither_completions_nor_steps(tmp_path: Path) -> None:
    """The same seed: the same completions, and gradients that agree to rounding."""
    beta = "grpo.beta=0.05"
    plain = ran(tmp_path, "grpo", beta, "checkpointing=none", name="plain")
    for name, technique in {
        "again": ["checkpointing=none"],
        "checkpointed": ["checkpointing=full"],
        "padding_free": ["padding_free=on"],
        "chunks": ["checkpointing=selective", "loss.chunk_mib=1", "padding.multiple_of=8"],
        "parts": ["run.batch_size=2", "run.accumulation=2"],
    }.items():
        found = ran(tmp_path, "grpo", beta, *technique, name=name)
        for step in (1, 2):
            one, other = plain[step], found[step]
            assert other["reward"] == one["reward"], (name, step)
            assert other["completions/mean_length"] == one["completions/mean_length"], (name, step)
            assert other["loss"] == pytest.approx(one["loss"], abs=1e-5), (name, step)
            assert other["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3), (name, step)


def test_an_adapter_is_its_own_reference(tmp_path: Path) -> None:
    found = ran(
        tmp_path, "grpo", "grpo.beta=0.05", "peft=lora", "peft.targets=[q_proj,v_proj]", "run.learning_rate=0.05"
    )
    assert found[1]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert found[2]["kl"] > 1e-6
    effective = json.loads((tmp_path / "run" / "effective.json").read_text())
    assert effective["reference.mode"]["effective"] == "adapter"


@pytest.mark.parametrize("trainer", ["grpo", "rloo"])
def test_without_a_penalty_there_is_no_second_model(tmp_path: Path, trainer: str) -> None:
    found = {}
    for beta in ("0.0", "0.05"):
        plan = memcfg.resolve(
            [f"trainer={trainer}", *GROUPS[trainer], *SMALL, prompts(tmp_path), f"{trainer}.beta={beta}"]
        )
        found[beta] = build(plan, load().hooks(plan))
    assert found["0.0"].reference is None
    assert not [e for e in gather(found["0.0"]) if e.key == "reference.mode"]
    assert [e.effective for e in gather(found["0.05"]) if e.key == "reference.mode"] == ["live"]


SEVERAL = [
    "grpo.num_iterations=2", "generation.steps=2", "grpo.beta=0.05", "run.learning_rate=0.02", "grpo.epsilon=0.05",
    "run.steps=6", "run.scheduler=constant",
]  # fmt: skip


def test_a_round_serves_several_updates_and_a_run_goes_on_within_one(tmp_path: Path) -> None:
    """Two steps are sampled at a time and trained on twice: a round lasts four steps. A checkpoint after the third is in the
    middle of it."""
    whole = ran(tmp_path, "grpo", *SEVERAL, name="whole")
    rewards = [line.get("reward") for line in whole[1:]]
    assert [reward is not None for reward in rewards] == [True, False, False, False, True, False]
    assert whole[1]["clip_ratio/region"] == 0
    assert max(line["clip_ratio/region"] for line in whole[2:5]) > 0
    ran(tmp_path, "grpo", *SEVERAL, "run.steps=3", "run.save_steps=3", name="part")
    checkpoint = tmp_path / "part" / "checkpoint-3"
    ran(tmp_path, "grpo", *SEVERAL, f"run.resume={checkpoint}", name="rest")
    rest = {line["step"]: line for line in lines(tmp_path / "rest" / "metrics.jsonl")}
    for step in (4, 5, 6):
        for name in ("loss", "grad_norm", "reward", "clip_ratio/region", "kl"):
            assert rest[step].get(name) == whole[step].get(name), (step, name)
    shown = completions(tmp_path / "whole")
    assert shown[1] == shown[3], "each step shows the completions that it was trained on itself"
    assert shown[2] == shown[4]
    assert not {one["completion"] for one in shown[1]} & {one["completion"] for one in shown[2]}
    assert completions(tmp_path / "rest") == {step: shown[step] for step in (4, 5, 6)}


def completions(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """What is shown of each step, without its number."""
    found: dict[int, list[dict[str, Any]]] = {}
    for line in lines(folder / "completions.jsonl"):
        found.setdefault(line.pop("step"), []).append(line)
    return found


def test_a_step_may_be_sampled_in_parts(tmp_path: Path) -> None:
    found = ran(tmp_path, "grpo", "run.batch_size=2", "run.accumulation=4", "generation.steps=2")
    assert all("reward" in line for line in found[1:])


def test_completions_that_hit_the_limit_are_left_out_aloud(tmp_path: Path) -> None:
    told = Told()
    found = ran(tmp_path, "grpo", "grpo.mask_truncated=true", "generation.max_new_tokens=1", told=told)
    text = "each of them hit `generation.max_new_tokens` and is left out"
    assert [n for n in told.notes if "learned" in n] == [
        f"nothing can be learned from the completions of step 1: {text}"
    ]
    assert found[1]["completions/truncated"] == 1.0
    assert found[1]["grad_norm"] == 0.0


@pytest.mark.parametrize("trainer", ["grpo", "rloo", "online_dpo"])
def test_rows_without_prompts_are_refused(tmp_path: Path, trainer: str) -> None:
    file = tmp_path / "text.jsonl"
    file.write_text('{"text": "no prompt"}\n' * 4, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        ran(tmp_path, trainer, path=f"data.path={file}")
    assert str(caught.value) == f"`trainer={trainer}` needs rows with `prompt`; their columns: `text`"


def test_columns_that_reward_functions_could_not_be_given_are_refused(tmp_path: Path) -> None:
    """`completions` are those that were sampled: the column would never be seen."""
    path = prompts(tmp_path, completions="mine", finished=True, answer="42")
    with pytest.raises(DataError) as caught:
        ran(tmp_path, "grpo", path=path)
    assert str(caught.value) == (
        "`data.path`: the rows have `completions` and `finished`, which is what reward functions call a part of what was sampled\n"
        "  give the column another name"
    )


def test_a_prompt_that_leaves_no_position_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        ran(tmp_path, "grpo", "generation.max_new_tokens=40000")
    assert str(caught.value) == (
        "`generation.max_new_tokens`: a prompt of 20 tokens and 40,000 more are too long for a model of 32,768 positions\n"
        "  generation.max_new_tokens=32748"
    )
    assert not (tmp_path / "run").exists()


def test_a_column_that_a_reward_reads_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "bare.jsonl"
    file.write_text('{"prompt": "Write digits."}\n' * 8, encoding="utf-8")
    with pytest.raises(RunError) as caught:
        ran(tmp_path, "grpo", path=f"data.path={file}")
    assert str(caught.value) == (
        "`rewards.functions`: the reward `kinds` asks for `wanted`, and the rows have no such column; there are `prompts`, "
        "`completions`, `prompt_ids`, `completion_ids`, `finished`"
    )


def test_code_is_imported_only_where_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("def short(completions):\n    return [-float(len(c)) for c in completions]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = ["rewards.functions=['mine:short']", "rewards.weights=null"]
    with pytest.raises(
        ConflictError, match=r"`mine:short` is code of its own, which is imported only with `rewards.trust"
    ):
        ran(tmp_path, "grpo", *asked)
    found = ran(tmp_path, "grpo", *asked, "rewards.trust_code=true")
    assert found[1]["rewards/mine:short/mean"] < 0
