"""Supervised fine-tuning end to end: memcfg beside TRL's SFTTrainer, the same documents and the same model shape.

    python benchmarks/sft.py --out results/sft.jsonl                      every case
    python benchmarks/sft.py --out FILE --cases trl_packed,packed         some of them
    python benchmarks/sft.py --out FILE attention=varlen                  with further choices for memcfg's cases
    python benchmarks/sft.py --out FILE --toy                             small enough for a CPU
    python benchmarks/sft.py --out FILE --profile FILE                    with a profile of memcfg's cases

1,000 documents of lognormal length (median 403, cut at 4,096 tokens), a 0.6 B shape with random weights, bfloat16, AdamW,
rows of at most 2,048 tokens. Each case is a process of its own and trains twice: the first time its shapes are new to every
kernel, the second time they are not. Tokens are supervised ones, between the end of the fifth step and that of the last."""

from __future__ import annotations

import gc
import json
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fresh import program

PACKED, PADDED = ["packing=bfd", "run.batch_size=4"], ["run.batch_size=8"]
CASES: dict[str, Any] = {
    "trl_padded": {"per_device_train_batch_size": 8},
    "trl_padded_liger": {"per_device_train_batch_size": 8, "use_liger_kernel": True},
    "trl_packed": {"per_device_train_batch_size": 4, "packing": True},
    "trl_packed_nockpt": {"per_device_train_batch_size": 4, "packing": True, "gradient_checkpointing": False},
    "padded": PADDED,
    "padding_free": [*PADDED, "padding_free=on"],
    "packed": PACKED,
    "packed_nockpt": [*PACKED, "checkpointing=none"],
    "packed_selective": [*PACKED, "checkpointing=selective"],
    "packed_every2": [*PACKED, "checkpointing.every=2"],
    "packed_8bit": [*PACKED, "optimizer=adamw_8bit"],
    "packed_in_backward": [*PACKED, "optimizer=in_backward"],
}
"""TRL's cases are arguments of its configuration, memcfg's are overrides."""
WARM, DOCUMENTS = 5, 1000


def documents(count: int, longest: int, words: int) -> list[list[int]]:
    import numpy

    generator = numpy.random.default_rng(0)
    lengths = numpy.clip(generator.lognormal(6.0, 0.9, count).astype(int), 16, longest)
    return [generator.integers(3, words, length).tolist() for length in lengths]


class Clock:
    """Tokens and seconds of the steps after the first few, and the peak memory in them."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last, self.tokens = first, last, 0

    def after(self, step: int) -> None:
        if step == self.first:
            self.begin = self._now()
            if _cuda():
                _torch().cuda.reset_peak_memory_stats()
        if step == self.last:
            self.seconds = self._now() - self.begin

    def _now(self) -> float:
        if _cuda():
            _torch().cuda.synchronize()
        return time.perf_counter()

    def result(self) -> dict[str, float]:
        steps = self.last - self.first
        return {
            "tokens_per_second": round(self.tokens / self.seconds),
            "ms_per_step": round(1e3 * self.seconds / steps, 1),
        }


def timed(trainer: Any, clock: Clock, tokens_of: Callable[[Any], int]) -> None:
    """Train, with the clock running."""
    from transformers import TrainerCallback

    class Tell(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock.after(state.global_step)

    trainer.add_callback(Tell())
    step = trainer.training_step

    def counting(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if trainer.state.global_step >= clock.first:
            clock.tokens += tokens_of(inputs)
        return step(model, inputs, *args, **kwargs)

    trainer.training_step = counting
    trainer.train()


# --------------------------------------------------------------------------------------------------------- memcfg


def memcfg_case(choices: list[str], steps: int, toy: bool, profile: str | None) -> Callable[[], dict[str, Any]]:
    folder = Path(tempfile.mkdtemp())
    docs = documents(60 if toy else DOCUMENTS, 200 if toy else 4096, 2000 if toy else 151_000)
    lines = (json.dumps({"input_ids": ids}) + "\n" for ids in docs)
    (folder / "data.jsonl").write_text("".join(lines), encoding="utf-8")
    model = (
        ["model=tiny", "model.dtype=float32"]
        if toy
        else ["model=shape", "model.preset=qwen3-0.6b", "model.dtype=bfloat16"]
    )
    asked = [
        *model, "data=jsonl", f"data.path={folder / 'data.jsonl'}", f"truncation.max_length={128 if toy else 2048}",
        f"run.steps={steps}", "run.learning_rate=1e-5", "run.log_steps=1000", *choices,
    ]  # fmt: skip
    import memcfg
    from memcfg.engine.build import build
    from memcfg.engine.trainer import EngineTrainer
    from memcfg.registry import load

    plan, hooks = memcfg.resolve(asked), None
    hooks = load().hooks(plan)

    def tokens_of(batches: Any) -> int:
        return sum(int((b.labels[:, 1:] != -100).sum()) for b in batches)

    def once() -> tuple[dict[str, float], float]:
        run = build(plan, hooks)
        trainer = EngineTrainer(run, folder)
        clock = Clock(WARM, steps)
        with _profiled(profile):
            timed(trainer, clock, tokens_of)
        return clock.result(), _peak()

    return lambda: _twice(once, plan={"attention": plan["attention.implementation"], "kernel": plan["loss.kernel"]})


# ------------------------------------------------------------------------------------------------------------ TRL


def trl_case(choices: dict[str, Any], steps: int, toy: bool) -> Callable[[], dict[str, Any]]:
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config
    from trl import SFTConfig, SFTTrainer

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    docs = documents(60 if toy else DOCUMENTS, 200 if toy else 4096, 2000 if toy else 151_000)
    sizes = (
        {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 2048}
        if toy
        else {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "vocab_size": 151_936}
    )
    shape = Qwen3Config(
        **sizes, num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=262_144,
        tie_word_embeddings=True,
    )  # fmt: skip
    config = SFTConfig(
        output_dir=tempfile.mkdtemp(), max_steps=steps, max_length=128 if toy else 2048, learning_rate=1e-5,
        logging_steps=1000, report_to=[], save_strategy="no", bf16=not toy, disable_tqdm=True, use_cpu=toy, **choices,
    )  # fmt: skip

    def once() -> tuple[dict[str, float], float]:
        with torch.device("cuda" if _cuda() else "cpu"):
            dtype = torch.bfloat16 if _cuda() else torch.float32
            model = AutoModelForCausalLM.from_config(shape, dtype=dtype, attn_implementation="sdpa")
        rows = Dataset.from_dict({"input_ids": docs})
        trainer = SFTTrainer(model=model, args=config, train_dataset=rows, processing_class=tokenizer)
        clock = Clock(WARM, steps)
        timed(trainer, clock, lambda inputs: int((inputs["labels"] != -100).sum()))
        return clock.result(), _peak()

    return lambda: _twice(once)


# ---------------------------------------------------------------------------------------------------------- shared


def _twice(once: Callable[[], tuple[dict[str, float], float]], passes: int = 2, **more: Any) -> dict[str, Any]:
    """What the first pass and the last found; the peak is the last one's."""
    results = []
    for _ in range(passes):
        _torch().manual_seed(0)
        gc.collect()
        if _cuda():
            _torch().cuda.empty_cache()
        results.append(once())
    repeated = {"repeated": results[-1][0]} if passes > 1 else {}
    reserved = round(_torch().cuda.max_memory_reserved() / 2**30, 2) if _cuda() else 0.0
    return {"fresh": results[0][0], **repeated, "peak_gib": round(results[-1][1], 2), "reserved_gib": reserved, **more}


def _profiled(path: str | None) -> Any:
    from contextlib import contextmanager, nullcontext

    if path is None:
        return nullcontext()
    import torch
    from torch.profiler import ProfilerActivity, profile

    @contextmanager
    def profiling() -> Any:
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if _cuda() else [])]
        with profile(activities=kinds) as seen:
            yield
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        Path(path).write_text(seen.key_averages().table(sort_by=by, row_limit=40, max_name_column_width=90))

    return profiling()


def word_tokenizer(words: int) -> Any:
    """A tokenizer of so many words, for TRL's trainers that take text: `w3`, `w4` ..."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{k}": k for k in range(3, words)}}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def in_words(ids: list[int]) -> str:
    return " ".join(f"w{i}" for i in ids)


def _torch() -> Any:
    import torch

    return torch


def _cuda() -> bool:
    return bool(_torch().cuda.is_available())


def _peak() -> float:
    return float(_torch().cuda.max_memory_allocated()) / 2**30 if _cuda() else 0.0


def prepared(case: str, asked: Namespace) -> Callable[[], dict[str, Any]]:
    choices = CASES[case]
    if isinstance(choices, dict):
        return trl_case(choices, asked.steps, asked.toy)
    return memcfg_case([*choices, *asked.overrides], asked.steps, asked.toy, asked.profile)


if __name__ == "__main__":
    program(__file__, __doc__, list(CASES), prepared, out="results/sft.jsonl", steps=30, toy=False, profile=None)
