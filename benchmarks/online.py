"""GRPO end to end: memcfg beside TRL, the same prompts, the same model shape, both sampling through Transformers.

    python benchmarks/online.py --out results/online.jsonl                     every case
    python benchmarks/online.py --out FILE --cases trl,padded                  some of them
    python benchmarks/online.py --out FILE padding.multiple_of=64              with further choices for memcfg's cases
    python benchmarks/online.py --out FILE --tiny                              small enough for a CPU

A step samples eight prompts of lognormal length (median 148, at most 512 tokens) eight times each, at most `--new` new tokens, and
trains on the 64 completions in micro-batches of eight: a 0.6 B shape with random weights, bfloat16, AdamW, no reference. Random
weights hardly ever end a completion, so both trainers sample and train on the same number of tokens. The reward is the share of
even token ids: it costs nothing. Each case is a process of its own and trains twice: the first time its shapes are new to every
kernel, the second time they are not. Seconds are those of whole steps, sampling included, after the second; the peak is that of
those steps. `sampling` is the part of memcfg's steps that sampling took."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fresh import measured, run_all
from sft import Clock, _cuda, _peak, _torch, _twice, timed

CASES: dict[str, list[str] | None] = {
    "trl": None,
    "padded": [],
    "padding_free": ["padding_free=on"],
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


def memcfg_case(choices: list[str], steps: int, new: int, tiny: bool) -> Callable[[], dict[str, Any]]:
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
        "run.log_steps=1000", *choices,
    ])  # fmt: skip
    hooks = load().hooks(plan)
    rows = [{"input_ids": ids, "about": '{"prompt": "known"}'} for ids in prompts(PROMPTS * steps, words, longest)]

    def once() -> tuple[dict[str, float], float]:
        run = build(plan, hooks)
        run.train, run.eval = Dataset.from_list(rows), None
        trainer = EngineTrainer(run, folder)
        clock = Clock(WARM, steps)
        timed(trainer, clock, lambda batches: sum(sum(b.lengths) for b in batches))
        assert trainer.rollouts is not None
        sampling = 1e3 * trainer.rollouts.sampler.seconds / steps
        return clock.result() | {"sampling_ms_per_step": round(sampling, 1)}, _peak()

    return lambda: _twice(once, plan={"attention": plan["attention.implementation"], "kernel": plan["loss.kernel"]})


# ------------------------------------------------------------------------------------------------------------ TRL


def trl_case(steps: int, new: int, tiny: bool) -> Callable[[], dict[str, Any]]:
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config
    from trl import GRPOConfig, GRPOTrainer

    words, longest = sizes(tiny)
    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{k}": k for k in range(3, words)}}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    said = [" ".join(f"w{i}" for i in ids) for ids in prompts(PROMPTS * steps, words, longest)]
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
        "disable_tqdm": True, "use_cpu": tiny, "gradient_checkpointing": True,
    }  # fmt: skip

    def once() -> tuple[dict[str, float], float]:
        with torch.device("cuda" if _cuda() else "cpu"):
            dtype = torch.bfloat16 if _cuda() else torch.float32
            model = AutoModelForCausalLM.from_config(shape, dtype=dtype, attn_implementation="sdpa")
        trainer = GRPOTrainer(
            model=model, reward_funcs=[even], args=GRPOConfig(**arguments), train_dataset=rows,
            processing_class=tokenizer,
        )  # fmt: skip
        clock = Clock(WARM, steps)
        timed(trainer, clock, lambda inputs: 0)  # prompts come here, not what is trained on
        found = clock.result()
        del found["tokens_per_second"]
        return found, _peak()

    return lambda: _twice(once)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results/online.jsonl")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--new", type=int, default=256, help="tokens in a completion")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    if args.case is None:
        rest = ["--steps", str(args.steps), "--new", str(args.new), *(["--tiny"] if args.tiny else []), *args.overrides]
        run_all(__file__, args.cases.split(","), rest, Path(args.out))
        return
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    _torch()
    choices = CASES[args.case]
    if choices is None:
        measured(lambda: trl_case(args.steps, args.new, args.tiny))
    else:
        measured(lambda: memcfg_case([*choices, *args.overrides], args.steps, args.new, args.tiny))


if __name__ == "__main__":
    main()
