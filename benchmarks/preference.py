"""Preference trainers end to end: memcfg's DPO and reward models beside TRL's, the same pairs and the same model shape.

    python benchmarks/preference.py --out results/preference.jsonl             every case
    python benchmarks/preference.py --out FILE --cases trl_dpo,dpo             some of them
    python benchmarks/preference.py --out FILE attention=varlen                with further choices for memcfg's cases
    python benchmarks/preference.py --out FILE --toy                           small enough for a CPU

Eight pairs for every step, whose prompts and completions have lognormal lengths (medians 148 and 200, at most 1,024 tokens), a 0.6 B shape with
random weights, bfloat16, AdamW, eight pairs to a step, and for DPO a separate reference model that begins as the policy. Each
case is a process of its own and trains twice: the first time its shapes are new to every kernel, the second time they are
not. Tokens are those of both completions with their prompts, padding left out, between the end of the fifth step and that of
the last. `loss` is the mean of the last steps: the trainers see the same pairs in another order."""

from __future__ import annotations

import copy
import json
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fresh import program
from sft import WARM, Clock, _cuda, _peak, _torch, _twice, in_words, timed, word_tokenizer

CASES: dict[str, tuple[str, Any]] = {
    "trl_dpo": ("dpo", {}),
    "trl_reward": ("reward", {}),
    "dpo": ("dpo", []),
    "dpo_padding_free": ("dpo", ["padding_free=on"]),
    "dpo_precompute": ("dpo", ["padding_free=on", "reference=precompute"]),
    "reward": ("reward", []),
    "reward_padding_free": ("reward", ["padding_free=on"]),
}
"""The trainer, and TRL's arguments (a dictionary) or memcfg's overrides (a list)."""
EOS = 1


def pairs(count: int, words: int, longest: int) -> list[tuple[list[int], list[int], list[int]]]:
    """Prompt, better and worse completion of each pair."""
    import numpy

    generator = numpy.random.default_rng(0)

    def drawn(median: float) -> list[int]:
        length = int(numpy.clip(generator.lognormal(median, 0.9), 4, longest))
        return generator.integers(3, words, length).tolist()

    return [(drawn(5.0), drawn(5.3), drawn(5.3)) for _ in range(count)]


def size(toy: bool, steps: int) -> tuple[int, int, int]:
    """Pairs, words of the vocabulary and the longest part of a pair. No more pairs than are seen: all trainers see the same."""
    return (8 * steps, 2000, 60) if toy else (8 * steps, 151_000, 1024)


# --------------------------------------------------------------------------------------------------------- memcfg


def memcfg_case(trainer_name: str, choices: list[str], steps: int, toy: bool) -> Callable[[], dict[str, Any]]:
    from datasets import Dataset

    import memcfg
    from memcfg.engine.build import build
    from memcfg.engine.trainer import EngineTrainer
    from memcfg.registry import load

    folder = Path(tempfile.mkdtemp())
    text = {"prompt": "one", "chosen": " two", "rejected": " three"}  # only so that there are rows: they are replaced
    (folder / "data.jsonl").write_text((json.dumps(text) + "\n") * 16, encoding="utf-8")
    model = ["model=tiny", "model.dtype=float32"] if toy else ["model=shape", "model.preset=qwen3-0.6b"]
    asked = [
        f"trainer={trainer_name}", *model, *([] if toy else ["model.dtype=bfloat16"]), "data=jsonl",
        f"data.path={folder / 'data.jsonl'}", "truncation.max_length=2048", f"run.steps={steps}", "run.batch_size=8",
        "run.learning_rate=1e-5", "run.log_steps=1000", *choices,
    ]  # fmt: skip
    plan = memcfg.resolve(asked)
    hooks = load().hooks(plan)
    rows = Dataset.from_list([_row(*pair, reward=trainer_name == "reward") for pair in pairs(*size(toy, steps))])

    def once() -> tuple[dict[str, float], float]:
        run = build(plan, hooks)
        run.train, run.eval = _known(run, rows), None
        trainer = EngineTrainer(run, folder)
        clock, losses = Clock(WARM, steps), Losses(trainer, steps)
        timed(trainer, clock, lambda batches: sum(sum(b.lengths) for b in batches))
        return clock.result() | losses.result(), _peak()

    return lambda: _twice(once, plan={"attention": plan["attention.implementation"], "kernel": plan["loss.kernel"]})


def _row(prompt: list[int], better: list[int], worse: list[int], *, reward: bool) -> dict[str, Any]:
    """A prepared row."""
    ids = [[*prompt, *side, EOS] for side in (better, worse)]
    mask = lambda i: [-100] * (len(i) - 1 if reward else len(prompt)) + i[(-1 if reward else len(prompt)) :]  # noqa: E731
    labels = [mask(i) for i in ids]
    return {"input_ids": ids[0] + ids[1], "labels": labels[0] + labels[1], "seq_lengths": [len(i) for i in ids]}


def _known(run: Any, rows: Any) -> Any:
    """The rows with what the reference gives them, where that is computed before training."""
    from memcfg.engine.layout import laid

    def batches(found: Any, count: int) -> Any:
        for start in range(0, len(found), count):
            documents = run.collator([found[i] for i in range(start, min(start + count, len(found)))])
            yield laid(run.layout, documents).to(run.device)

    if run.reference is None:
        return rows
    return run.reference.prepare(rows, run.model, run.objective.score, batches)


# ------------------------------------------------------------------------------------------------------------ TRL


def trl_case(trainer_name: str, choices: dict[str, Any], steps: int, toy: bool) -> Callable[[], dict[str, Any]]:
    import torch
    from datasets import Dataset
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        Qwen3Config,
    )
    from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer

    count, words, longest = size(toy, steps)
    tokenizer = word_tokenizer(words)
    columns = zip(*pairs(count, words, longest), strict=True)
    prompts, better, worse = ([in_words(ids) for ids in column] for column in columns)
    rows = Dataset.from_dict({
        "prompt": [f"{p} " for p in prompts], "chosen": [f"{c} <eos>" for c in better],
        "rejected": [f"{c} <eos>" for c in worse],
    })  # fmt: skip
    sizes = (
        {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 2048}
        if toy
        else {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "vocab_size": 151_936}
    )
    shape = Qwen3Config(
        **sizes, num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=262_144,
        tie_word_embeddings=True, pad_token_id=0, num_labels=1,
    )  # fmt: skip
    kind = AutoModelForCausalLM if trainer_name == "dpo" else AutoModelForSequenceClassification
    arguments = {
        "output_dir": tempfile.mkdtemp(), "max_steps": steps, "max_length": 2048, "per_device_train_batch_size": 8,
        "learning_rate": 1e-5, "logging_steps": 1000, "report_to": [], "save_strategy": "no", "bf16": not toy,
        "disable_tqdm": True, "use_cpu": toy, **choices,
    }  # fmt: skip

    def once() -> tuple[dict[str, float], float]:
        with torch.device("cuda" if _cuda() else "cpu"):
            model = kind.from_config(
                shape, dtype=torch.bfloat16 if _cuda() else torch.float32, attn_implementation="sdpa"
            )
        given = {"model": model, "train_dataset": rows, "processing_class": tokenizer}
        if trainer_name == "dpo":
            trainer: Any = DPOTrainer(ref_model=copy.deepcopy(model), args=DPOConfig(**arguments), **given)
        else:
            trainer = RewardTrainer(args=RewardConfig(**arguments), **given)
        clock, losses = Clock(WARM, steps), Losses(trainer, steps)
        timed(trainer, clock, lambda inputs: int(inputs["attention_mask"].sum()))
        return clock.result() | losses.result(), _peak()

    return lambda: _twice(once)


class Losses:
    """The mean loss of the last steps of a trainer."""

    LAST = 5

    def __init__(self, trainer: Any, steps: int) -> None:
        self.found: list[Any] = []
        step = trainer.training_step

        def keeping(*args: Any, **kwargs: Any) -> Any:
            loss = step(*args, **kwargs)
            if trainer.state.global_step >= steps - self.LAST:
                self.found.append(loss.detach())
            return loss

        trainer.training_step = keeping

    def result(self) -> dict[str, float]:
        return {"loss": round(float(_torch().stack(self.found).float().mean()), 4)}


def prepared(case: str, asked: Namespace) -> Callable[[], dict[str, Any]]:
    trainer_name, choices = CASES[case]
    if isinstance(choices, dict):
        return trl_case(trainer_name, choices, asked.steps, asked.toy)
    return memcfg_case(trainer_name, [*choices, *asked.overrides], asked.steps, asked.toy)


if __name__ == "__main__":
    program(__file__, __doc__, list(CASES), prepared, out="results/preference.jsonl", steps=25, toy=False)
