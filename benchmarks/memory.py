"""What model-side techniques cost in time and free in memory: memcfg beside TRL where TRL has the technique.

    python benchmarks/memory.py --out results/memory.jsonl                      every case
    python benchmarks/memory.py --out FILE --cases ckpt_32k,ckpt_offload_32k    some of them
    python benchmarks/memory.py --out FILE --toy                                small enough for a CPU

`..._32k` and `..._64k`: one sequence of that length through a 1.5 B shape with 28 layers, backbone only, loss on its last
hidden states. `all_8k`: everything saved is moved, no layer is computed again. `long`: Qwen3-8B's shape, LoRA of rank 16 on
all linear layers, 131,072 tokens, one whole update. Every case is a process of its own; `first_ms` is its first step (host
memory is page-locked then), `ms` the median of those after it; memcfg's `long` page-locks before, in `pin_s`."""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fresh import program
from updates import now

CASES = (
    "copy_rate", "none_8k", "all_8k", "trl_all_8k", "ckpt_32k", "ckpt_offload_32k", "trl_ckpt_offload_32k", "ckpt_64k",
    "ckpt_offload_64k", "trl_ckpt_offload_64k", "long",
)  # fmt: skip
MORE = ("every2_8k", "selective_32k", "tiled_64k", "disk_8k", "trl_long", "trl_long_liger")
"""Cases that are run only when they are named."""

LENGTHS = {"8k": 8192, "32k": 32_768, "64k": 65_536}
TECHNIQUES = {
    "none": ["checkpointing=none"],
    "all": ["checkpointing=none", "offload=all"],
    "disk": ["checkpointing=none", "offload=disk"],
    "ckpt": ["checkpointing=full"],
    "ckpt_offload": ["checkpointing=full", "offload=checkpoint_inputs"],
    "every2": ["checkpointing=full", "checkpointing.every=2"],
    "selective": ["checkpointing=selective"],
    "tiled": ["checkpointing=full", "offload=checkpoint_inputs", "mlp=tiled"],
}
LONG = [
    "peft=lora", "peft.rank=16", "peft.targets=all-linear", "peft.dropout=0.0", "peft.dtype=bfloat16",
    "checkpointing=full", "offload=checkpoint_inputs", "mlp=tiled", "packing=none",
]  # fmt: skip


# ----------------------------------------------------------------------------------------------------- one sequence


def backbone_case(technique: str, length: int, toy: bool, more: list[str]) -> Callable[[], dict[str, Any]]:
    """Steps over the backbone, with the contexts of memcfg's or of TRL's technique around them."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    import memcfg
    from memcfg.registry import load

    theirs = technique.startswith("trl_")
    name = technique.removeprefix("trl_")
    asked = TECHNIQUES["none" if theirs and name == "all" else "ckpt" if theirs else name]
    plan = memcfg.resolve([*asked, "model.dtype=float32" if toy else "model.dtype=bfloat16", *more])
    hooks = load().hooks(plan)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3} if toy else {
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
    }  # fmt: skip
    shape = Qwen3Config(
        **sizes, num_attention_heads=16, num_key_value_heads=8, head_dim=128, vocab_size=32_000,
        max_position_embeddings=65_536, tie_word_embeddings=True,
    )  # fmt: skip
    if theirs:
        from trl.models.activation_offloading import OffloadActivations

    def measure() -> dict[str, Any]:
        dtype = torch.float32 if toy else torch.bfloat16
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(shape, dtype=dtype, attn_implementation="sdpa").train()
        patched = hooks.patch_model(plan=plan, model=model)
        contexts = list(hooks.step_context(plan=plan, model=patched, contexts=[]))
        ids = torch.randint(0, 32_000, (1, 64 if toy else length), device=device)

        def step() -> None:
            model.zero_grad(set_to_none=True)
            with ExitStack() as stack:
                for context in [OffloadActivations()] if theirs else contexts:
                    stack.enter_context(context)
                model.model(input_ids=ids, use_cache=False).last_hidden_state.float().pow(2).mean().backward()

        return _steps(step, model, repeat=1 if length > LENGTHS["32k"] else 3) | _moved(contexts)

    return measure


def _moved(contexts: list[Any]) -> dict[str, Any]:
    """Bytes that memcfg moved out in one step, and what it takes of the host."""
    movers = [c.mover for c in contexts if hasattr(c, "mover")]
    if not movers:
        return {}
    return {"moved_gib": round(movers[0].stack.peak / 2**30, 3), "host_gib": round(movers[0].stack.capacity / 2**30, 3)}


def _steps(step: Callable[[], None], model: Any, repeat: int) -> dict[str, Any]:
    """Time of the first step and of those after it, and the peak of the latter above what is alive before a step."""
    first = _milliseconds(step)
    model.zero_grad(set_to_none=True)
    gc.collect()
    before = _allocated()
    times = [_milliseconds(step) for _ in range(repeat)]
    peak = _peak() - before
    return {"first_ms": round(first, 1), "ms": round(statistics.median(times), 1), "peak_mib": round(peak / 2**20)}


def copy_rate(toy: bool) -> Callable[[], dict[str, Any]]:
    """GiB a second of one large copy through page-locked memory, each way."""
    import torch

    def measure() -> dict[str, Any]:
        if not torch.cuda.is_available():
            return {"out_gib_s": None, "back_gib_s": None}
        size = 1 << 30
        host, device = (
            torch.empty(size, dtype=torch.uint8, pin_memory=True),
            torch.empty(size, dtype=torch.uint8, device="cuda"),
        )
        out = min(_milliseconds(lambda: host.copy_(device, non_blocking=True)) for _ in range(5))
        back = min(_milliseconds(lambda: device.copy_(host, non_blocking=True)) for _ in range(5))
        return {"out_gib_s": round(1e3 / out, 1), "back_gib_s": round(1e3 / back, 1)}

    return measure


# ----------------------------------------------------------------------------------------------------- long context


def long_case(toy: bool, more: list[str]) -> Callable[[], dict[str, Any]]:
    """memcfg's whole update over one long document."""
    folder = Path(tempfile.mkdtemp())
    length = 300 if toy else 131_072
    # the loader deals two rows in this order: a short one first, in which libraries warm up
    _write(folder / "data.jsonl", _in_loaders_order([length // 64, length]), 2000 if toy else 151_000)
    model = (
        ["model=tiny", "model.dtype=float32"]
        if toy
        else ["model=shape", "model.preset=qwen3-8b", "model.dtype=bfloat16"]
    )
    import memcfg
    from memcfg.engine.build import build
    from memcfg.engine.trainer import EngineTrainer
    from memcfg.registry import load

    plan = memcfg.resolve([
        *model, "data=jsonl", f"data.path={folder / 'data.jsonl'}", f"truncation.max_length={length}", "run.steps=2",
        "run.batch_size=1", "run.learning_rate=1e-5", "run.log_steps=1000", *LONG, *more,
    ])  # fmt: skip
    hooks = load().hooks(plan)

    def measure() -> dict[str, Any]:
        run = build(plan, hooks)
        trainer = EngineTrainer(run, folder)
        pinned = _pin(run.contexts, length, run.model.config) if not toy else {}
        return _two_steps(trainer) | _moved(run.contexts) | pinned

    return measure


def _in_loaders_order(lengths: list[int]) -> list[int]:
    """Lengths placed so that the loader, with seed 0, comes to them in this order."""
    import torch

    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(0)).tolist()
    placed = dict(zip(order, lengths, strict=True))
    return [placed[index] for index in range(len(lengths))]


def _pin(contexts: list[Any], length: int, config: Any) -> dict[str, float]:
    """Take the host memory that the long row will need, and say how long page-locking it takes."""
    begin = now()
    for mover in (context.mover for context in contexts if hasattr(context, "mover")):
        mover.stack.take(config.num_hidden_layers * config.hidden_size * length * 2)
        mover.stack.reset()
    return {"pin_s": round(now() - begin, 2)}


def trl_long_case(liger: bool, toy: bool) -> Callable[[], dict[str, Any]]:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config
    from trl import SFTConfig, SFTTrainer

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    length = 300 if toy else 131_072
    folder = Path(tempfile.mkdtemp())
    docs = _write(folder / "data.jsonl", [length] * 4, 2000 if toy else 151_000)
    shape = Qwen3Config(
        hidden_size=64 if toy else 4096, intermediate_size=128 if toy else 12_288, num_hidden_layers=2 if toy else 36,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, vocab_size=2048 if toy else 151_936,
        max_position_embeddings=262_144, tie_word_embeddings=False,
    )  # fmt: skip
    linear = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

    def measure() -> dict[str, Any]:
        with torch.device("cpu" if toy else "cuda"):
            dtype = torch.float32 if toy else torch.bfloat16
            model = AutoModelForCausalLM.from_config(shape, dtype=dtype, attn_implementation="sdpa")
        config = SFTConfig(
            output_dir=str(folder), max_steps=2, max_length=length, per_device_train_batch_size=1, learning_rate=1e-5,
            activation_offloading=not toy, use_liger_kernel=liger, bf16=not toy, report_to=[], save_strategy="no",
            disable_tqdm=True, logging_steps=1000, use_cpu=toy,
        )  # fmt: skip
        trainer = SFTTrainer(
            model=model, args=config, train_dataset=Dataset.from_dict({"input_ids": docs}), processing_class=tokenizer,
            peft_config=LoraConfig(r=16, target_modules=linear),
        )  # fmt: skip
        return _two_steps(trainer)

    return measure


def _write(file: Path, lengths: list[int], words: int) -> list[list[int]]:
    import numpy

    generator = numpy.random.default_rng(0)
    docs = [generator.integers(3, words, length).tolist() for length in lengths]
    file.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in docs), encoding="utf-8")
    return docs


def _two_steps(trainer: Any) -> dict[str, Any]:
    """Seconds of the first and of the second update, and the peak of the second. memcfg's first is a short row."""
    from transformers import TrainerCallback

    marks = []

    class Tell(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            marks.append(now())
            _peak()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            marks.append(now())

    trainer.add_callback(Tell())
    trainer.train()
    peak = _peak()
    return {
        "first_s": round(marks[1] - marks[0], 2), "s": round(marks[3] - marks[2], 2), "peak_gib": round(peak / 2**30, 2)
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- measure


def _milliseconds(work: Callable[[], Any]) -> float:
    begin = now()
    work()
    return 1e3 * (now() - begin)


def _allocated() -> int:
    import torch

    if not torch.cuda.is_available():
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _peak() -> int:
    """The peak since this was asked last."""
    import torch

    if not torch.cuda.is_available():
        return 0
    torch.cuda.synchronize()
    found = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return found


def prepared(case: str, toy: bool, more: list[str]) -> Callable[[], dict[str, Any]]:
    if case == "copy_rate":
        return copy_rate(toy)
    if case == "long":
        return long_case(toy, more)
    if case.startswith("trl_long"):
        return trl_long_case(case.endswith("liger"), toy)
    technique, _, length = case.rpartition("_")
    return backbone_case(technique, LENGTHS[length], toy, more)


def main() -> None:
    def prepare(case: str, asked: argparse.Namespace) -> Callable[[], dict[str, Any]]:
        if asked.toy:
            os.environ.setdefault("MEMCFG_OFFLOAD_REHEARSAL", "1")
        return prepared(case, asked.toy, asked.overrides)

    doc = f"{__doc__}\n\nFurther cases, run when they are named: {', '.join(MORE)}"
    program(__file__, doc, CASES, prepare, out="results/memory.jsonl", toy=False)


if __name__ == "__main__":
    main()
