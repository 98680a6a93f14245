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
from time import perf_counter
from typing import Any

from fresh import measured, run_all

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


def prepared(case: str, toy: bool, more: list[str]) -> Callable[[], dict[str, Any]]:
    """Everything that a case needs, loaded without touching the GPU."""
    import datasets  # noqa: F401
    import torch  # noqa: F401

    import memcfg
    from memcfg.engine import build, update  # noqa: F401
    from memcfg.registry import load

    length = 96 if toy else 4096
    asked = [
        *(TOY if toy else SHAPE),
        f"truncation.max_length={length}",
        "run.learning_rate=1e-4",
        *CASES[case][1],
        *more,
    ]
    asked += ["truncation.max_length=200"] if toy and "16k" in case else []
    try:
        plan = memcfg.resolve(asked)
    except memcfg.MemcfgError as error:
        refusal = " ".join(str(error).split("\n"))
        return lambda: {"refused": refusal[:600]}
    hooks = load().hooks(plan)
    if plan["peft.method"] != "none":
        import peft  # noqa: F401
    return lambda: _updates(plan, hooks)


def _updates(plan: Any, hooks: Any) -> dict[str, Any]:
    import torch

    from memcfg.engine.build import build
    from memcfg.engine.update import counted, gradients, step
    from memcfg.planner.batches import full_rows, micro_batches

    torch.manual_seed(0)  # adapters draw from it
    run = build(plan, hooks, data=False)
    words = run.model.config.get_text_config().vocab_size
    rows = {"rows": lambda lengths: _random_rows(lengths, words)}
    batches = micro_batches(plan, hooks, run.tokenizer, run.layout, rows, full_rows(plan))
    count = counted(run.objective, batches)
    norm = plan.get("run.max_grad_norm")
    times, losses, peaks = [], [], []
    for _ in range(STEPS):
        _forget_peak()
        begin = _now()
        placed = [batch.to(plan.device) for batch in batches]
        result = gradients(run.model, placed, run.objective, contexts=run.contexts, denominator=count)
        step(run.model, run.optimizer, max_grad_norm=norm)
        times.append(1e3 * (_now() - begin))
        losses.append(float(result.loss))
        peaks.append(_peak())
        del placed, result
    return {
        "ms": round(min(times[1:]), 1), "first_ms": round(times[0], 1), "losses": losses,
        "peak_gib": round(max(p["allocated"] for p in peaks) / 2**30, 3),
        "reserved_gib": round(max(p["reserved"] for p in peaks) / 2**30, 3),
        "device_gib": round(max(p["device"] for p in peaks) / 2**30, 3), "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }  # fmt: skip


def _random_rows(lengths: Any, words: int) -> list[dict[str, Any]]:
    import torch

    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(3, words, (sum(documents),), generator=generator) for documents in lengths]
    return [{"input_ids": row, "labels": row} for row in ids]


def _now() -> float:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter()


def _forget_peak() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _peak() -> dict[str, int]:
    """Bytes of the most since the peak was forgotten, and what the driver says is in use now; zeros without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return {"allocated": 0, "reserved": 0, "device": 0}
    free, total = torch.cuda.mem_get_info()
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {"allocated": allocated, "reserved": reserved, "device": total - free}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results/techniques.jsonl")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--show", type=Path, help="only print the table of this file")
    parser.add_argument("--ahead", type=int, default=3, help="processes that load while one measures")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", help="further choices for every case")
    args = parser.parse_args()
    if args.show is not None:
        show(args.show)
        return
    if args.case is None:
        rest = [*(["--toy"] if args.toy else []), *args.overrides]
        run_all(__file__, args.cases.split(","), rest, Path(args.out), timeout=90, ahead=args.ahead)
        show(Path(args.out))
        return
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if args.toy:
        os.environ.setdefault("MEMCFG_OFFLOAD_REHEARSAL", "1")
    measured(lambda: prepared(args.case, args.toy, args.overrides))


if __name__ == "__main__":
    main()
