"""Output heads side by side: time, memory and gradient error of linear + cross-entropy, forward and backward.

    python benchmarks/loss.py --out results/loss                  three shapes, trained and frozen head, one GPU
    python benchmarks/loss.py --out results/loss --curve          200 steps of a small model: chunked against whole logits
    python benchmarks/loss.py --out results/loss --end-to-end     a 1.7 B model's whole step
    python benchmarks/loss.py --out results/loss --cpu            chunked against whole logits on the CPU

Implementations take turns, several times, so that a GPU that slows down when hot slows all of them alike; so does a large
matrix product. Its best rate in that run gives the bound: three products for a trained head, two for a frozen one, and
nothing else.
Numbers go to a JSON file in the folder `--out`, a table to the terminal."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from loss_peers import Peer, available, versions

SHAPES = {"16k x 2048 x 152k": (16384, 2048, 151936), "16k x 4096 x 128k": (16384, 4096, 128256),
          "64k x 1024 x 152k": (65536, 1024, 151936)}  # fmt: skip
"""(tokens, hidden size, vocabulary): what 16 k tokens of a 1.7 B and an 8 B model, and 64 k of a 0.6 B one, look like."""
ROUNDS = 3
CHECKED = 2048
"""Rows of the vocabulary on which the weight gradient is held against float32."""
WHOLE_LIMIT = 20_000
"""Tokens beyond which whole logits are left out."""


class Problem:
    """One shape's inputs. The loss is divided by a number that is no power of two: rounding must not be flattered."""

    def __init__(self, tokens: int, width: int, vocabulary: int, trained: bool) -> None:
        generator = torch.Generator("cuda").manual_seed(1)
        make = {"device": "cuda", "dtype": torch.bfloat16, "generator": generator}
        self.hidden = torch.randn(tokens, width, **make).requires_grad_()
        self.weight = torch.randn(vocabulary, width, **make).mul_(0.02).requires_grad_(trained)
        self.targets = torch.randint(vocabulary, (tokens,), device="cuda", generator=generator)
        self.divisor = tokens - 5
        self.flops = 2 * tokens * width * vocabulary * (3 if trained else 2)

    def step(self, peer: Peer) -> torch.Tensor:
        self.hidden.grad = self.weight.grad = None
        loss = peer.call(self.hidden, self.weight, self.targets) / self.divisor
        loss.backward()
        return loss.detach()

    def reference(self) -> tuple[float, torch.Tensor, torch.Tensor]:
        """Loss, hidden gradient and the checked rows of the weight gradient, everything in float32."""
        hidden, weight = self.hidden.detach().float(), self.weight.detach().float()
        loss, over_hidden, over_weight = 0.0, torch.empty_like(hidden), torch.zeros_like(weight[:CHECKED])
        for part in torch.arange(len(hidden), device="cuda").split(2048):
            logits = hidden[part] @ weight.T
            scores = logits.log_softmax(-1)
            loss -= scores.gather(1, self.targets[part, None]).double().sum().item()
            scores.exp_()[torch.arange(len(part)), self.targets[part]] -= 1
            over_hidden[part] = scores @ weight / self.divisor
            over_weight += scores[:, :CHECKED].T @ hidden[part] / self.divisor
        return loss / self.divisor, over_hidden, over_weight


def milliseconds(work: Callable[[], Any], times: int = 2) -> list[float]:
    work()
    spans = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for start, end in spans:
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in spans]


def peak(problem: Problem, peer: Peer) -> float:
    """MiB above the inputs at the highest point of a step that starts without gradients."""
    problem.step(peer)
    problem.hidden.grad = problem.weight.grad = None
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    problem.step(peer)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.float() - expected).norm() / expected.norm())


def compare(shape: str, trained: bool) -> dict[str, Any]:
    tokens, width, vocabulary = SHAPES[shape]
    problem = Problem(tokens, width, vocabulary, trained)
    loss, over_hidden, over_weight = problem.reference()
    peers = [p for p in available() if tokens <= WHOLE_LIMIT or not p.whole]
    rows: dict[str, dict[str, Any]] = {}
    for peer in peers:
        row: dict[str, Any] = {"exact": peer.exact, "times": [], "peak_mib": peak(problem, peer)}
        row["loss_error"] = abs(float(problem.step(peer)) - loss) / loss
        row["hidden_error"] = error(problem.hidden.grad, over_hidden)
        if trained:
            row["weight_error"] = error(problem.weight.grad[:CHECKED], over_weight)
        rows[peer.name] = row
    square = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
    rates: list[float] = []
    for round_ in range(ROUNDS):
        for peer in peers[round_ % len(peers) :] + peers[: round_ % len(peers)]:
            rows[peer.name]["times"] += milliseconds(lambda peer=peer: problem.step(peer))
            rates += [2 * 8192**3 / ms / 1e9 for ms in milliseconds(lambda: square[0] @ square[1], 3)]
    rate = statistics.median(rates)
    for row in rows.values():
        row["ms"] = statistics.median(row["times"])
        row["of_bound"] = problem.flops / max(rates) / 1e9 / row["ms"]
    result = {"shape": shape, "trained": trained, "tflops": rate, "tflops_best": max(rates), "rows": rows}
    result["bound_ms"] = problem.flops / max(rates) / 1e9
    return result


def table(result: dict[str, Any]) -> str:
    head = "trained head" if result["trained"] else "frozen head"
    base = result["rows"].get("TRL fused head", {}).get("ms")
    lines = [
        f"{result['shape']}, {head}: bound {result['bound_ms']:.1f} ms at {result['tflops_best']:.0f} TFLOP/s"
        f" (the fastest product; the median one {result['tflops']:.0f})",
        "",
        "| implementation | ms | of TRL | of the bound | peak MiB | error of d weight | error of d hidden |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in sorted(result["rows"].items(), key=lambda item: item[1]["ms"]):
        cells = [
            name if row["exact"] else f"{name} (not exact)", f"{row['ms']:.1f}",
            f"{row['ms'] / base:.2f}" if base else "", f"{row['of_bound']:.0%}", f"{row['peak_mib']:,.0f}",
            f"{row['weight_error']:.2e}" if "weight_error" in row else "", f"{row['hidden_error']:.2e}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def machine() -> dict[str, Any]:
    return {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None, "versions": versions()}


def write(out: Path, name: str, result: Any) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps({**machine(), "result": result}, indent=1) + "\n", encoding="utf-8")


def kernels(out: Path, shapes: str) -> None:
    results = []
    for shape in (shape for shape in SHAPES if shapes in shape):
        for trained in (True, False):
            results.append(compare(shape, trained))
            print(table(results[-1]), flush=True)
            gc.collect()
            torch.cuda.empty_cache()
            write(out, "loss", results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/loss"))
    parser.add_argument("--shapes", default="", help="shapes that contain this, as 64k")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--end-to-end", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    if options.cpu:
        from loss_cpu import measure

        write(options.out, "loss_cpu", measure())
    elif options.curve:
        from loss_curve import curves

        write(options.out, "loss_curve", curves())
    elif options.end_to_end:
        from loss_step import steps

        write(options.out, "loss_step", steps())
    else:
        kernels(options.out, options.shapes)


if __name__ == "__main__":
    main()
