"""What each model-side technique costs and frees: one update of a 1.7 B shape with it, beside the same without it.

    python benchmarks/techniques.py --out results/techniques.jsonl           every case, about 90 s of one GPU
    python benchmarks/techniques.py --out FILE --cases full,adamw_8bit       some of them
    python benchmarks/techniques.py --out FILE --toy                         small enough for a CPU
    python benchmarks/techniques.py --show FILE                              the table of what was measured

Qwen3-1.7B's shape with random weights in bfloat16, rows of random tokens, every one of them a target; `build`, `gradients`
and `step` are the engine's own. Full training takes two rows of 4,096 tokens with AdamW and full checkpointing unless the
case says otherwise; `lora...` trains an adapter on all linear layers, `..._16k` one row of 16,384. Each case is a process of
its own. Step times are the fastest after the first; peaks are torch's own count, `device` what the driver says is in
use after the last step. All updates are made on the same rows, so the losses after them say whether the model learns the same."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fresh import program
from updates import GIB, Subject, in_use, ready, versions

STEPS = 5
LORA = ["peft=lora", "peft.dropout=0.0"]
LONG = ["run.batch_size=1", "truncation.max_length=16384"]
CASES: dict[str, tuple[str, list[str]]] = {
    "full": ("full", []),
    "adamw_bf16": ("full", ["optimizer=adamw_bf16"]),
    "adamw_8bit": ("full", ["optimizer=adamw_8bit"]),
    "paged": ("full", ["optimizer=paged"]),
    "adafactor": ("full", ["optimizer=adafactor"]),
    "in_backward": ("full", ["optimizer=in_backward"]),
    "every2": ("full", ["checkpointing.every=2"]),
    "selective": ("full", ["checkpointing=selective"]),
    "no_checkpointing": ("full", ["checkpointing=none"]),
    "expandable": ("full", ["allocator=expandable"]),
    "lora": ("lora", LORA),
    "lora_nf4": ("lora", [*LORA, "quantization=nf4"]),
    "lora_int8": ("lora", [*LORA, "quantization=int8"]),
    "lora_16k": ("lora_16k", [*LORA, *LONG]),
    "lora_tiled_16k": ("lora_16k", [*LORA, *LONG, "mlp=tiled"]),
    "adamw_offload": ("full", ["optimizer=adamw_offload"]),
}
"""For each case the one that it is compared with, and its choices."""

SHAPE = ["model=shape", "model.preset=qwen3-1.7b", "model.dtype=bfloat16", "run.batch_size=2"]
TOY = ["model=tiny", "model.dtype=float32", "run.batch_size=2"]


def prepared(case: str, asked: argparse.Namespace) -> Callable[[], dict[str, Any]]:
    """Everything that a case needs, loaded without touching the GPU."""
    import memcfg

    toy: bool = asked.toy
    if toy:
        os.environ.setdefault("MEMCFG_OFFLOAD_REHEARSAL", "1")
    length = 96 if toy else 4096
    words = [*(TOY if toy else SHAPE), f"truncation.max_length={length}", "run.learning_rate=1e-4", *CASES[case][1]]
    words += [*asked.overrides, *(["truncation.max_length=200"] if toy and "16k" in case else [])]
    try:
        plan, hooks = ready(words)
    except memcfg.MemcfgError as error:
        refusal = " ".join(str(error).split("\n"))
        return lambda: {"refused": refusal[:600]}
    return lambda: _updates(plan, hooks)


def _updates(plan: Any, hooks: Any) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)  # adapters draw from it
    subject = Subject.built(plan, hooks, rows=_random_rows)
    done, device = [], 0
    for _ in range(STEPS):
        done.append(subject.once(losses=True))
        device = max(device, in_use()[0])
    return {
        "ms": round(min(one.ms for one in done[1:]), 1), "first_ms": round(done[0].ms, 1), "losses": [one.loss for one in done],
        "peak_gib": round(max(one.allocated for one in done) / GIB, 3),
        "reserved_gib": round(max(one.reserved for one in done) / GIB, 3), "device_gib": round(device / GIB, 3), **versions(),
    }  # fmt: skip


def _random_rows(lengths: Any, words: int) -> list[dict[str, Any]]:
    import torch

    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(3, words, (sum(documents),), generator=generator) for documents in lengths]
    return [{"input_ids": row, "labels": row} for row in ids]


def show(out: Path) -> None:
    """The table of a file of results, in Markdown; of a case that was measured several times, the last."""
    found = {line["case"]: line for line in map(json.loads, out.read_text(encoding="utf-8").splitlines())}
    print(
        "| case | beside | peak GiB | of it | reserved GiB | device GiB | ms | of it | loss, first | after | beside's |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case, result in found.items():
        beside = found.get(CASES[case][0], {})
        if "losses" not in result:
            print(f"| {case} | {result.get('refused') or result.get('error')} |")
            continue
        plain = beside if "losses" in beside else result
        print(
            f"| {case} | {CASES[case][0]} | {result['peak_gib']} | {_ratio(result, plain, 'peak_gib')} | {result['reserved_gib']}"
            f" | {result['device_gib']} | {result['ms']} | {_ratio(result, plain, 'ms')} | {result['losses'][0]:.5f}"
            f" | {result['losses'][-1]:.5f} | {plain['losses'][0]:.5f}, {plain['losses'][-1]:.5f} |"
        )


def _ratio(result: dict[str, Any], plain: dict[str, Any], name: str) -> str:
    return f"{result[name] / plain[name]:.2f}" if plain[name] else "-"


if __name__ == "__main__":
    program(
        __file__,
        __doc__,
        tuple(CASES),
        prepared,
        out="results/techniques.jsonl",
        timeout=90,
        ahead=3,
        show=show,
        toy=False,
    )
