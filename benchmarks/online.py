"""GRPO end to end: memcfg beside TRL, the same prompts, the same model shape, both sampling through Transformers.

    python benchmarks/online.py --out results/online.jsonl                     every case
    python benchmarks/online.py --out FILE --cases trl,padded                  some of them
    python benchmarks/online.py --out FILE padding.multiple_of=64              with further choices for memcfg's cases
    python benchmarks/online.py --out FILE --tiny                              small enough for a CPU

A step samples eight prompts of lognormal length (median 148, at most 512 tokens) eight times each, at most `--new` new tokens, and
trains on the 64 completions in micro-batches of eight: a 0.6 B shape with random weights, bfloat16, AdamW, no reference. Random
weights hardly ever end a completion and nothing is shuffled, so both trainers sample and train on the same prompts and the same
number of tokens, step by step. The reward is the share of even token ids: it costs nothing. Each case is a process of its own and
trains twice: the first time its shapes are new to every kernel, the second time they are not. Seconds are those of whole steps,
sampling included, after the second; the peak is that of those steps. `sampling` is the part of memcfg's steps that sampling took.
A key-value cache is most of what sampling needs, and the same for both; `phases` lays the optimizer's states aside meanwhile;
`offload` moves the inputs of checkpointed layers too, and takes smaller chunks of logits; `graphs` also replays a recorded token,
with a static cache. `--passes 1` leaves the second time out: sampling, most of a step, has no shapes to get used to."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from fresh import program
from sft import Clock, _cuda, _peak, _twice, in_words, timed, word_tokenizer

LEAN = ["padding_free=on", "offload.phases=true", "offload=checkpoint_inputs", "loss.chunk_mib=64"]
CASES: dict[str, list[str] | None] = {
    "trl": None,
    "padded": [],
    "padding_free": ["padding_free=on"],
    "phases": ["padding_free=on", "offload.phases=true"],
    "offload": [*LEAN],
    "graphs": [*LEAN, "generation.graphs=true"],
}
"""memcfg's overrides; None is TRL."""
WARM, PROMPTS, GROUP = 2, 8, 8


def even(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """The share of even token ids."""
    return [sum(token % 2 == 0 for token in ids) / len(ids) for ids in completion_ids]


def sizes(tiny: bool) -> tuple[int, int]:
    """Words of the vocabulary and the longest prompt."""
    return (2000, 40) if tiny else (151_000, 512)


def prompts(count: int, words: int, longest: int) -> list[list[int]]:
    import numpy

    generator = numpy.random.default_rng(0)
    lengths = [int(numpy.clip(generator.lognormal(5.0, 0.5), 4, longest)) for _ in range(count)]
    return [generator.integers(3, words, length).tolist() for length in lengths]


# --------------------------------------------------------------------------------------------------------- memcfg


class SamplingClock(Clock):
    """Also counts what sampling took of those steps."""

    def __init__(self, first: int, last: int, sampler: Any) -> None:
        super().__init__(first, last)
        self.sampler, self.before = sampler, 0.0

    def after(self, step: int) -> None:
        super().after(step)
        if step == self.first:
            self.before = self.sampler.seconds

    def result(self) -> dict[str, float]:
        sampling = 1e3 * (self.sampler.seconds - self.before) / (self.last - self.first)
        return super().result() | {"sampling_ms_per_step": round(sampling, 1)}


def memcfg_case(choices: list[str], steps: int, new: int, passes: int, tiny: bool) -> Callable[[], dict[str, Any]]:
    from datasets import Dataset

    import memcfg
    from memcfg.engine.build import build
    from memcfg.engine.trainer import EngineTrainer
    from memcfg.registry import load

    words, longest = sizes(tiny)
    folder = Path(tempfile.mkdtemp())
    (folder / "data.jsonl").write_text('{"prompt": "only so that there are rows"}\n' * 16, encoding="utf-8")
    model = ["model=tiny"] if tiny else ["model=shape", "model.preset=qwen3-0.6b", "model.dtype=bfloat16"]
    plan = memcfg.resolve([
        "trainer=grpo", *model, "data=jsonl", f"data.path={folder / 'data.jsonl'}", "rewards.functions=['online:even']",
        "rewards.trust_code=true", f"run.steps={steps}", f"run.batch_size={GROUP}", f"run.accumulation={PROMPTS}",
        f"grpo.num_generations={GROUP}", f"generation.max_new_tokens={new}", "run.learning_rate=1e-6",
        "run.log_steps=1000", "grpo.shuffle=false", *choices,
    ])  # fmt: skip
    hooks = load().hooks(plan)
    rows = [{"input_ids": ids, "about": '{"prompt": "known"}'} for ids in prompts(PROMPTS * steps, words, longest)]

    def once() -> tuple[dict[str, float], float]:
        run = build(plan, hooks)
        run.train, run.eval = Dataset.from_list(rows), None
        trainer = EngineTrainer(run, folder)
        assert trainer.rollouts is not None
        clock = SamplingClock(WARM, steps, trainer.rollouts.sampler)
        timed(trainer, clock, lambda batches: sum(sum(b.lengths) for b in batches))
        return clock.result(), _peak()

    return lambda: _twice(
        once, passes, plan={"attention": plan["attention.implementation"], "kernel": plan["loss.kernel"]}
    )


# ------------------------------------------------------------------------------------------------------------ TRL


def trl_case(steps: int, new: int, passes: int, tiny: bool) -> Callable[[], dict[str, Any]]:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, Qwen3Config
    from trl import GRPOConfig, GRPOTrainer

    words, longest = sizes(tiny)
    tokenizer = word_tokenizer(words)
    said = [in_words(ids) for ids in prompts(PROMPTS * steps, words, longest)]
    rows = Dataset.from_dict({"prompt": said})
    dimensions = (
        {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "vocab_size": 2048, "head_dim": 32}
        if tiny
        else {
            "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "vocab_size": 151_936,
            "head_dim": 128,
        }
    )  # fmt: skip
    heads = (
        {"num_attention_heads": 4, "num_key_value_heads": 2}
        if tiny
        else {"num_attention_heads": 16, "num_key_value_heads": 8}
    )
    shape = Qwen3Config(
        **dimensions, **heads, max_position_embeddings=40_960, tie_word_embeddings=not tiny, pad_token_id=0,
        eos_token_id=1,
    )  # fmt: skip
    arguments = {
        "output_dir": tempfile.mkdtemp(), "max_steps": steps, "per_device_train_batch_size": GROUP,
        "gradient_accumulation_steps": PROMPTS, "num_generations": GROUP, "max_completion_length": new,
        "learning_rate": 1e-6, "logging_steps": 1000, "report_to": [], "save_strategy": "no", "bf16": not tiny,
        "disable_tqdm": True, "use_cpu": tiny, "gradient_checkpointing": True, "shuffle_dataset": False,
    }  # fmt: skip

    def once() -> tuple[dict[str, float], float]:
        with torch.device("cuda" if _cuda() else "cpu"):
            dtype = torch.bfloat16 if _cuda() else torch.float32
            # a copy each time: training with checkpointing switches the cache off in the configuration that it is given
            model = AutoModelForCausalLM.from_config(deepcopy(shape), dtype=dtype, attn_implementation="sdpa")
        trainer = GRPOTrainer(
            model=model, reward_funcs=[even], args=GRPOConfig(**arguments), train_dataset=rows,
            processing_class=tokenizer,
        )  # fmt: skip
        clock = Clock(WARM, steps)
        timed(trainer, clock, lambda inputs: 0)  # prompts come here, not what is trained on
        found = clock.result()
        del found["tokens_per_second"]
        return found, _peak()

    return lambda: _twice(once, passes)


def prepared(case: str, asked: Namespace) -> Callable[[], dict[str, Any]]:
    choices = CASES[case]
    if choices is None:
        return trl_case(asked.steps, asked.new, asked.passes, asked.tiny)
    return memcfg_case([*choices, *asked.overrides], asked.steps, asked.new, asked.passes, asked.tiny)


if __name__ == "__main__":
    program(
        __file__, __doc__, list(CASES), prepared, out="results/online.jsonl", steps=6, new=256, passes=2, tiny=False
    )
