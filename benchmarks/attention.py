"""Attention over document lengths beside block-diagonal masks, on packed rows, in the engine's own step.

    python benchmarks/attention.py --out results/attention.jsonl          on one GPU
    python benchmarks/attention.py --out FILE --toy                       small enough for a CPU (masks only)

A 1.7 B shape with random weights in bfloat16, one packed row of 8,192 tokens (documents of lognormal length), forward and
backward by `memcfg.engine.update.gradients`, median of 7 after 3. Then the error of the loss and of all gradients against
`sdpa` in float32 with the same weights. Last, `sdpa` on padded batches whose width is new every time or always the same,
with cuDNN's kernel allowed and not."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import memcfg
from memcfg.batch import Batch, Documents
from memcfg.engine.build import Run, build
from memcfg.engine.update import gradients
from memcfg.registry import load

Weights = dict[str, torch.Tensor]


def built(choices: Sequence[str], toy: bool) -> Run:
    shape = ["model=tiny"] if toy else ["model=shape", "model.preset=qwen3-1.7b"]
    plan = memcfg.resolve([*shape, "truncation.max_length=null", *choices])
    return build(plan, load().hooks(plan), data=False)


def documents(total: int, words: int, seed: int = 0) -> Documents:
    """One packed row of `total` tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths: list[int] = []
    while (left := total - sum(lengths)) > 0:
        drawn = int(torch.empty(1).log_normal_(6.5, 0.8, generator=generator))
        lengths.append(min(max(drawn, 1), left))
    ids = [torch.randint(3, words, (n,), generator=generator) for n in lengths]
    return Documents(ids, [x.clone() for x in ids], [[*range(len(ids))]])


def step(run: Run, batch: Batch) -> float:
    run.model.zero_grad(set_to_none=True)
    return float(gradients(run.model, [batch], run.objective, contexts=run.contexts).loss)


def timed(call: Callable[[], Any], warm: int = 3, count: int = 7) -> tuple[float, float]:
    """Median milliseconds, and the peak in GiB."""
    times = []
    for turn in range(warm + count):
        if turn == warm and torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        wait()
        begin = time.perf_counter()
        call()
        wait()
        times.append(1e3 * (time.perf_counter() - begin))
    peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    return statistics.median(times[warm:]), peak


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def grads(run: Run) -> Weights:
    return {name: p.grad.float().cpu() for name, p in run.model.named_parameters() if p.grad is not None}


def distance(found: Weights, exact: Weights) -> float:
    """Norm of the difference over the norm of what is exact, over all gradients."""
    apart = sum(float((found[n] - exact[n]).square().sum()) for n in exact)
    return (apart / sum(float(g.square().sum()) for g in exact.values())) ** 0.5


def free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def packed(implementation: str, checkpointing: str, tokens: int, toy: bool) -> dict[str, Any]:
    run = built(["padding_free=on", f"attention={implementation}", f"checkpointing={checkpointing}"], toy)
    words = run.model.config.vocab_size
    batch = run.layout(documents(tokens, words)).to(run.device)
    ms, peak = timed(lambda: step(run, batch))
    return {"case": "packed", "attention": implementation, "checkpointing": checkpointing, "ms": round(ms, 1),
            "peak_gib": round(peak, 2), "documents": len(batch.lengths)}  # fmt: skip


def errors(implementations: Sequence[str], tokens: int, toy: bool) -> list[dict[str, Any]]:
    """Loss and gradients of each against `sdpa` in float32, with the weights of the first."""
    common, found = ["padding_free=on", "checkpointing=full"], {}
    weights: Weights = {}
    for name in implementations:
        run = built([*common, f"attention={name}"], toy)
        weights = weights or {k: v.cpu() for k, v in run.model.state_dict().items()}
        found[name] = (step(run, run.layout(documents(tokens, run.model.config.vocab_size)).to(run.device)), grads(run))
        del run
        free()
    run = built([*common, "attention=sdpa", "model.dtype=float32"], toy)
    run.model.load_state_dict(weights)
    loss = step(run, run.layout(documents(tokens, run.model.config.vocab_size)).to(run.device))
    exact = grads(run)
    return [
        {"case": "error", "attention": name, "loss_error": abs(value - loss), "gradient_error": distance(g, exact)}
        for name, (value, g) in found.items()
    ]


def shapes(cudnn: bool, toy: bool) -> dict[str, Any]:
    """Padded micro-batches of eight documents: milliseconds a step on widths never seen, and on one width over and over."""
    run = built(["attention=sdpa", f"attention.cudnn={str(cudnn).lower()}"] if not toy else ["attention=sdpa"], toy)
    words, widest = run.model.config.vocab_size, 64 if toy else 1024

    def batch(width: int) -> Batch:
        generator = torch.Generator().manual_seed(width)
        ids = [torch.randint(3, words, (width - 3 * i,), generator=generator) for i in range(8)]
        return run.layout(Documents(ids, [x.clone() for x in ids], [[i] for i in range(8)])).to(run.device)

    fresh = iter([batch(widest - 1 - 2 * i) for i in range(10)])
    new, _ = timed(lambda: step(run, next(fresh)))
    same = batch(widest - 11)
    again, _ = timed(lambda: step(run, same))
    return {"case": "shapes", "cudnn": cudnn, "fresh_ms": round(new, 1), "repeated_ms": round(again, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args()
    toy, tokens = options.toy, 256 if options.toy else 8192
    names = ["sdpa"] if toy else ["varlen", "sdpa"]
    options.out.parent.mkdir(parents=True, exist_ok=True)

    def tell(*results: dict[str, Any]) -> None:
        for result in results:
            print(json.dumps(result), flush=True)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        free()

    for checkpointing in ("none", "full"):
        for name in names:
            tell(packed(name, checkpointing, tokens, toy))
    tell(*errors(names, tokens // 2, toy))
    for cudnn in (False, True):
        tell(shapes(cudnn, toy))


if __name__ == "__main__":
    main()
