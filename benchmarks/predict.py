"""Predictions against the truth: what the engine's own update really allocates on a CUDA device.

    python benchmarks/predict.py predict --out predicted.jsonl            needs no GPU
    python benchmarks/predict.py measure --out measured.jsonl             needs one
    python benchmarks/predict.py history --out history.jsonl --only q06-short,g1-ckpt     needs one
    python benchmarks/predict.py measure --tiny --out tiny.jsonl          to try it on a CPU (times alone); `predict` too
    python benchmarks/predict.py compare [predicted.jsonl measured.jsonl] [--peers peers.jsonl] [--out report.json]
                                                                          those of results/ by default

Every configuration is measured in a process of its own, so that its allocator, its context and its workspaces are fresh. A step is what training takes: the plan's `build`, then
`gradients` and `step` on full rows. Peaks are CUDA's own. Times are the fastest of the steps after the first: what disturbs
the host is no property of a plan. `history` writes what the allocator was asked for and did, call by call, for reading where
a prediction of reserved memory went another way."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from fresh import measured, run_all
from updates import GIB, Once, Subject, in_use, peak, ready, versions

STEPS: Final = 7
ENOUGH_S: Final = 3.0
"""After so many seconds and four steps no further step is timed: long steps are steady."""
CARD: Final = "h200"
KEPT: Final = tuple(str(Path(__file__).parent / "results" / f"{name}_h200.jsonl") for name in ("predicted", "predict"))
"""Where the last predictions and measurements are kept. Of several lines for a configuration the last one counts."""
LIMITS: Final = (0.97, 1.0, 1.03)
"""Limits on reserved memory, as shares of the predicted least, under which some configurations are run again."""

Q06, Q17, Q4, Q8 = (f"model=shape model.preset=qwen3-{size}" for size in ("0.6b", "1.7b", "4b", "8b"))
L1, L8 = "model=shape model.preset=llama3-1b", "model=shape model.preset=llama3-8b"
G1 = "model=shape model.preset=gemma3-1b"
M7 = "model=shape model.preset=mistral-7b"
O1 = "model=shape model.preset=olmo2-1b"
S17 = "model=shape model.preset=smollm2-1.7b"
Q25 = "model=shape model.preset=qwen2.5-1.5b"
B4L2, B2L4, B1L8 = (f"run.batch_size={b} truncation.max_length={n}" for b, n in ((4, 2048), (2, 4096), (1, 8192)))
NONE = "checkpointing=none"
LORA = "peft=lora peft.dropout=0.0"

CONFIGURATIONS: Final[dict[str, str]] = {
    # losses
    "q06-nll": f"{Q06} {B4L2} loss=nll {NONE}", "q06-nll-ckpt": f"{Q06} {B4L2} loss=nll",
    "q06-chunked": f"{Q06} {B4L2} {NONE}", "q06-chunked-ckpt": f"{Q06} {B4L2}",
    "q06-torch": f"{Q06} {B4L2} {NONE} loss.kernel=torch", "q06-dft": f"{Q06} {B4L2} loss=dft",
    "q06-chunk-32": f"{Q06} {B4L2} loss.chunk_mib=32", "q06-chunk-2g": f"{Q06} {B4L2} loss.chunk_mib=2048",
    "l1-nll": f"{L1} {B4L2} loss=nll {NONE}", "l1-chunked": f"{L1} {B4L2} {NONE}", "l1-ckpt": f"{L1} {B4L2}",
    "g1-nll-ckpt": f"{G1} {B2L4} loss=nll", "g1-chunked": f"{G1} {B4L2} {NONE}", "g1-ckpt": f"{G1} {B2L4}",
    "o1-nll": f"{O1} {B4L2} loss=nll {NONE}", "o1-chunked": f"{O1} {B4L2} {NONE}", "o1-ckpt": f"{O1} {B4L2}",
    "s17-ckpt": f"{S17} {B4L2}", "s17-chunked": f"{S17} {B4L2} {NONE}",
    "q25-ckpt": f"{Q25} {B4L2}", "q25-nll": f"{Q25} {B2L4} loss=nll {NONE}",
    # lengths and batches
    "q06-odd": f"{Q06} run.batch_size=3 truncation.max_length=1777 loss=nll {NONE}",
    "q06-16k": f"{Q06} run.batch_size=1 truncation.max_length=16384", "q06-short": f"{Q06} run.batch_size=16 truncation.max_length=256",
    "q06-rows-1": f"{Q06} run.batch_size=1 truncation.max_length=512", "q06-multiple": f"{Q06} run.batch_size=3 truncation.max_length=1777 padding.multiple_of=64",
    "q06-accumulate": f"{Q06} run.batch_size=2 truncation.max_length=2048 run.accumulation=2",
    "q17-accumulate-4": f"{Q17} run.batch_size=1 truncation.max_length=2048 run.accumulation=4 {NONE}",
    # attention, packing
    "q06-eager": f"{Q06} run.batch_size=2 truncation.max_length=2048 loss=nll {NONE} attention=eager",
    "q17-plain-8k": f"{Q17} {B1L8} {NONE}", "q17-bfd-8k": f"{Q17} {B1L8} {NONE} packing=bfd", "q17-bfd-8k-ckpt": f"{Q17} {B1L8} packing=bfd",
    "q17-sdpa-8k": f"{Q17} {B1L8} {NONE} packing=bfd attention=sdpa", "l1-split-4k": f"{L1} {B2L4} packing=bfd_split attention=sdpa",
    "q06-wrapped": f"{Q06} {B2L4} packing=wrapped", "q06-padding-free": f"{Q06} {B4L2} padding_free=on",
    # layers
    "q17-selective": f"{Q17} {B4L2} checkpointing=selective", "l1-selective": f"{L1} {B2L4} checkpointing=selective",
    "q06-every-2": f"{Q06} {B4L2} checkpointing.every=2", "q06-reentrant": f"{Q06} {B4L2} checkpointing.reentrant=true",
    "q17-tiled": f"{Q17} {B1L8} mlp=tiled", "q06-tiled-16k": f"{Q06} run.batch_size=1 truncation.max_length=16384 mlp=tiled",
    "q06-offload-16k": f"{Q06} run.batch_size=1 truncation.max_length=16384 offload=checkpoint_inputs",
    "q06-offload-all": f"{Q06} {B2L4} {NONE} offload=all", "q17-offload-plain": f"{Q17} {B2L4} offload=checkpoint_inputs offload.streams=false",
    "l1-offload-all": f"{L1} {B4L2} {NONE} offload=all",
    # optimizers
    "q06-foreach": f"{Q06} {B4L2} optimizer.fused=false", "q17-sgd": f"{Q17} {B4L2} optimizer=sgd",
    "q17-bf16": f"{Q17} {B4L2} optimizer=adamw_bf16", "q17-adafactor": f"{Q17} {B4L2} optimizer=adafactor",
    "q17-host": f"{Q17} {B4L2} optimizer=adamw_offload", "l1-in-backward": f"{L1} {B4L2} optimizer.in_backward=true",
    "q17-decay": f"{Q17} {B4L2} optimizer.weight_decay=0.1", "q17-unclipped": f"{Q17} {B4L2} run.max_grad_norm=null",
    "q06-expandable": f"{Q06} {B4L2} loss=nll allocator=expandable", "l1-expandable": f"{L1} {B4L2} {NONE} allocator=expandable",
    "q06-float32": f"{Q06} {B2L4} model.dtype=float32", "l1-float32": f"{L1} {B4L2} model.dtype=float32",
    # adapters
    "q17-lora": f"{Q17} {B4L2} {LORA} {NONE}", "q17-lora-nll": f"{Q17} {B4L2} {LORA} loss=nll", "l1-lora": f"{L1} {B4L2} {LORA}",
    "q8-lora": f"{Q8} {B2L4} {LORA}", "q17-lora-bf16": f"{Q17} {B4L2} {LORA} peft.dtype=bfloat16 {NONE}",
    "q06-lora-nf4": f"{Q06} {B4L2} {LORA} quantization=nf4", "q8-lora-nf4": f"{Q8} {B2L4} {LORA} quantization=nf4",
    "q17-lora-double": f"{Q17} {B4L2} {LORA} quantization=nf4 quantization.double=true", "q17-lora-int8": f"{Q17} {B4L2} {LORA} quantization=int8",
    "m7-lora": f"{M7} {B2L4} {LORA}", "l8-lora-nll": f"{L8} {B2L4} {LORA} loss=nll", "q4-dora": f"{Q4} {B4L2} peft=lora peft.dora=true",
    # large
    "q8-full": f"{Q8} run.batch_size=1 truncation.max_length=4096", "l8-in-backward": f"{L8} run.batch_size=1 truncation.max_length=4096 optimizer.in_backward=true",
    "q4-full": f"{Q4} {B2L4}", "m7-full": f"{M7} {B2L4}", "q4-none": f"{Q4} {B4L2} {NONE}",
    # liger
    "q06-liger": f"{Q06} {B4L2} liger=on {NONE}", "l1-liger-ckpt": f"{L1} {B4L2} liger=on",
}  # fmt: skip

TINY: Final[dict[str, str]] = {
    "tiny": "model=tiny run.batch_size=2 truncation.max_length=64",
    "tiny-lora": f"model=tiny run.batch_size=2 truncation.max_length=64 {LORA}",
}
"""Small enough for a CPU: to try the program out."""

KNOWN: Final = CONFIGURATIONS | TINY

LIMITED: Final = ("q06-nll-ckpt", "q06-chunked-ckpt", "q17-lora-nll", "q06-float32", "g1-chunked", "l1-offload-all")
"""Configurations that are also run under limits."""


def predict(name: str) -> dict[str, Any]:
    """The prediction for a configuration, in a process that sees no GPU."""
    began = time.perf_counter()
    try:
        import torch

        torch.set_num_threads(1)
        from memcfg.compose import resolve
        from memcfg.planner.simulate import simulate
        from memcfg.registry import load

        registry = load()
        plan = resolve([f"assume.device={CARD}", *KNOWN[name].split()], registry=registry)
        found = simulate(plan, registry.hooks(plan)).to_dict()
        del found["timeline"]
        return {"case": name, **found, "peak": found["peak"][:12], "wall": round(time.perf_counter() - began, 2)}
    except Exception as error:
        return {"case": name, "error": f"{type(error).__name__}: {error}"[:600]}


def _measured(plan: Any, hooks: Any, limit: int | None, history: bool) -> dict[str, Any]:
    import torch

    there = torch.cuda.is_available()
    if history:
        torch.cuda.memory._record_memory_history(context=None, max_entries=2_000_000)
    if limit is not None:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    subject = Subject.built(plan, hooks)
    built, load = (torch.cuda.memory_allocated(), peak()[0]) if there else (0, 0)
    done: list[Once] = []
    for _ in range(2 if limit is not None or history else STEPS):
        if len(done) >= 4 and sum(one.ms for one in done) > 1e3 * ENOUGH_S:
            break
        done.append(subject.once())
    used, total = in_use()
    peaks = [one.allocated for one in done]
    return {
        "allocated_bytes": max(peaks), "allocated_by_step": peaks, "reserved_bytes": _most_reserved(done), "built_bytes": built,
        "load_bytes": load, "outside_bytes": used - torch.cuda.memory_reserved() if there else 0,
        "step_ms": round(min(one.ms for one in done[1:]), 2), "first_ms": round(done[0].ms, 2),
        "retries": torch.cuda.memory_stats()["num_alloc_retries"] if there else 0,
        "parameters": sum(p.numel() for p in subject.run.model.parameters()), "total_bytes": total, **versions(),
        **({"history": _history()} if history else {}),
    }  # fmt: skip


def _history() -> list[tuple[str, int, int]]:
    """What was asked of the allocator and what it asked of CUDA, in order: action, address, bytes."""
    import torch

    events = torch.cuda.memory._snapshot()["device_traces"][0]
    return [(event["action"], event["addr"], event["size"]) for event in events]


def _most_reserved(done: Sequence[Once]) -> int:
    """The most that was reserved at any time: what is still reserved, as nothing is given back in these runs."""
    import torch

    return max(done[-1].reserved, torch.cuda.memory_reserved() if torch.cuda.is_available() else 0)


def write(path: str, lines: Iterator[dict[str, Any]]) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
            file.flush()
            short = {
                k: v
                for k, v in line.items()
                if k in ("case", "error", "allocated_bytes", "reserved_bytes", "step_ms", "wall")
            }
            print(json.dumps(short), flush=True)


def read(path: str) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return {line["case"]: line for line in lines}


def cases(names: Sequence[str], predicted: str | None) -> list[str]:
    """Every configuration; with predictions, some under limits near their predicted least instead: `name@bytes`."""
    if not predicted:
        return list(names)
    least = {name: line["smallest_bytes"] for name, line in read(predicted).items() if "error" not in line}
    return [f"{name}@{int(share * least[name])}" for name in LIMITED if name in least for share in LIMITS]


def case(said: str) -> Callable[[], dict[str, Any]]:
    """One configuration, ready to be measured; with `+history`, what the allocator did is kept."""
    name, _, limit = said.removesuffix("+history").partition("@")
    plan, hooks = ready(KNOWN[name].split())
    return lambda: _measured(plan, hooks, int(limit) if limit else None, said.endswith("+history"))


# -------------------------------------------------------------------------------------------------------- comparing


def compare(predicted: dict[str, Any], measured: dict[str, Any], peers: dict[str, Any] | None = None) -> dict[str, Any]:
    """Errors of every configuration, and their summary; those of other estimators beside them (see `predict_peers.py`)."""
    failed = {
        name: found
        for name, m in measured.items()
        if (found := m.get("error") or _unusable(predicted.get(name), m)) is not None
    }
    rows = [_row(name, predicted[name], measured[name]) for name in measured if name not in failed]
    for row in rows:
        row["peers"] = _peers(row, (peers or {}).get(row["case"], {}))
    allocated = [abs(row["allocated_error"]) for row in rows]
    reserved = [abs(row["reserved_error"]) for row in rows]
    ordered, pairs = _order(rows)
    asked = [
        verdict for name in (row["case"] for row in rows) for verdict in _verdicts(predicted[name], measured[name])
    ]
    return {
        "configurations": len(rows),
        "allocated": {"mean": _mean(allocated), "worst": max(allocated, default=0.0)},
        "reserved": {"mean": _mean(reserved), "worst": max(reserved, default=0.0)},
        "order": {"right": ordered, "pairs": pairs}, "verdicts": {"right": sum(asked), "asked": len(asked)},
        "seconds": {"median": statistics.median([r["seconds"] for r in rows] or [0.0]), "worst": max((r["seconds"] for r in rows), default=0.0)},
        "peers": {peer: _peer_summary(rows, peer) for peer in dict.fromkeys(p for row in rows for p in row["peers"])},
        "rows": rows, "failed": failed,
    }  # fmt: skip


def _unusable(predicted: dict[str, Any] | None, measured: dict[str, Any]) -> str | None:
    """Why a measurement is compared with nothing."""
    if predicted is None:
        return "there is no prediction"
    if "error" in predicted:
        return str(predicted["error"])
    if not measured["allocated_bytes"]:
        return "it was measured without a GPU, where nothing counts the peak"
    if predicted["parameters"] != measured["parameters"]:
        return f"another model: {measured['parameters']:,} parameters measured, {predicted['parameters']:,} predicted"
    return None


def _peers(row: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """The error of each other estimator, None where it refused, and what it has no word for."""
    return {
        peer: {
            "error": found["allocated_bytes"] / row["allocated"] - 1 if "allocated_bytes" in found else None,
            "left_out": found["left_out"], "refused": found.get("error"),
        }
        for peer, found in said.items() if peer != "case"
    }  # fmt: skip


def _peer_summary(rows: Sequence[dict[str, Any]], peer: str) -> dict[str, Any]:
    """Its errors over all configurations that it takes, and over those of which it can say everything."""
    taken = [row["peers"][peer] for row in rows if row["peers"].get(peer, {}).get("error") is not None]
    summary = {"refused": len(rows) - len(taken)}
    for name, chosen in (("all", taken), ("said", [one for one in taken if not one["left_out"]])):
        errors = [abs(one["error"]) for one in chosen]
        summary[name] = {"configurations": len(errors), "mean": _mean(errors), "worst": max(errors, default=0.0)}
    return summary


def _row(name: str, predicted: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    return {
        "case": name, "allocated": measured["allocated_bytes"], "reserved": measured["reserved_bytes"],
        "allocated_error": predicted["allocated_bytes"] / measured["allocated_bytes"] - 1,
        "reserved_error": predicted["reserved_bytes"] / measured["reserved_bytes"] - 1,
        "step_ms": measured["step_ms"], "predicted_ms": predicted["step_ms"], "seconds": predicted["seconds"],
        "peak_phase": predicted["peak_phase"],
    }  # fmt: skip


def _verdicts(predicted: dict[str, Any], measured: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the verdict is right for a card with 3 % more than was reserved, where the step surely runs, and for one with 3 % less
    than was allocated, where it surely does not. Between the two only a run under a limit would tell."""
    from memcfg.planner.prediction import MARGIN

    needed, outside = predicted["needed_bytes"], measured["outside_bytes"]
    enough, little = 1.03 * (outside + measured["reserved_bytes"]), 0.97 * (outside + measured["allocated_bytes"])
    return needed <= enough * (1 - MARGIN), needed > little * (1 + MARGIN)


def _order(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Pairs within one workload (same model, rows and length) whose times differ by 5 % or more, and how many are in order."""
    right = pairs = 0
    for i, a in enumerate(rows):
        for b in rows[:i]:
            if _workload(a["case"]) == _workload(b["case"]) and abs(a["step_ms"] / b["step_ms"] - 1) >= 0.05:
                pairs += 1
                right += (a["step_ms"] - b["step_ms"]) * (a["predicted_ms"] - b["predicted_ms"]) > 0
    return right, pairs


def _workload(name: str) -> tuple[str, ...]:
    words = KNOWN[name].split()
    return tuple(w for w in words if w.startswith(("model.preset", "run.batch_size", "truncation", "run.accumulation")))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def show(report: dict[str, Any]) -> None:
    """The report as a table in Markdown."""
    names = [f" {peer} |" for peer in report["peers"]]
    print(
        f"| configuration | allocated GiB | error | reserved GiB | error | ms | predicted ms | peak in |{''.join(names)}"
    )
    print(f"| --- | --- | --- | --- | --- | --- | --- | --- |{' --- |' * len(names)}")
    for row in report["rows"]:
        told = "".join(f" {_peer_cell(row['peers'].get(peer))} |" for peer in report["peers"])
        print(
            f"| {row['case']} | {row['allocated'] / GIB:.3f} | {row['allocated_error']:+.3%} | {row['reserved'] / GIB:.3f}"
            f" | {row['reserved_error']:+.2%} | {row['step_ms']:.0f} | {row['predicted_ms']:.0f} | {row['peak_phase']} |{told}"
        )
    a, r, o = report["allocated"], report["reserved"], report["order"]
    print(
        f"\n{report['configurations']} configurations; allocated: mean {a['mean']:.3%}, worst {a['worst']:.3%}; reserved: mean {r['mean']:.2%}, worst {r['worst']:.2%}"
    )
    print(f"order of step times: {o['right']} of {o['pairs']} pairs; seconds a prediction: {report['seconds']}")
    print(f"verdicts 3 % beyond what was measured: {report['verdicts']['right']} of {report['verdicts']['asked']}")
    for peer, found in report["peers"].items():
        for name, text in (("said", "that it can say"), ("all", "that it takes, what it has no word for (*) left out")):
            s = found[name]
            print(f"{peer}: {s['configurations']} configurations {text}: mean {s['mean']:.1%}, worst {s['worst']:.1%}")
    for name, error in report["failed"].items():
        print(f"failed: {name}: {error}")


def _peer_cell(found: dict[str, Any] | None) -> str:
    if found is None or found["error"] is None:
        return "refused" if found is not None else ""
    return f"{found['error']:+.1%}{' *' if found['left_out'] else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("predict", "measure", "history", "compare"), nargs="?")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--out")
    parser.add_argument("--only", default="", help="names that contain one of these, between commas")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--peers", help="what other estimators say, for `compare`")
    parser.add_argument("--predicted", help="predictions: run under limits near them instead")
    parser.add_argument("--tiny", action="store_true", help="two small configurations, which a CPU runs too")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    known = TINY if asked.tiny else CONFIGURATIONS
    names = [name for name in known if any(part in name for part in asked.only.split(","))]
    if asked.case:
        measured(lambda: case(asked.case))
    elif asked.what == "predict":
        with ProcessPoolExecutor(asked.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            write(asked.out, iter(pool.map(predict, names)))
    elif asked.what in ("measure", "history"):
        todo = cases(names, asked.predicted) if asked.what == "measure" else [f"{name}+history" for name in names]
        run_all(__file__, todo, [], Path(asked.out), timeout=90, ahead=5)
    else:
        predicted, truth = (read(file) for file in (asked.files or KEPT))
        report = compare(predicted, truth, read(asked.peers) if asked.peers else None)
        show(report)
        if asked.out:
            Path(asked.out).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
