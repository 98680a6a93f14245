"""What one of several processes needs, measured on a single GPU, beside what the planner says that it needs.

    python benchmarks/one_rank.py --out results/one_rank.jsonl                     every case, about two minutes of one GPU
    python benchmarks/one_rank.py --out FILE --cases q17-fsdp2-2,q17-ddp-2         some of them
    python benchmarks/one_rank.py --out FILE --toy                                 small enough for a CPU
    python benchmarks/one_rank.py --show FILE                                      the table of what was measured

The other processes are made up: torch's fake process group sends what was never asked of anybody, so FSDP2 and DDP make the
allocations of the first of N processes while every number that they compute is meaningless. Nothing is said here of losses
or speed, and what NCCL allocates for itself is not there.

A case is `shape-strategy-processes`. Published shapes in bfloat16, rows packed to 4,096 tokens, two micro-batches of one row in
a step (`-16k`: one of four), chunked_nll (`-nll`: whole logits), AdamW, full checkpointing; Trainer prepares, clips and steps as in every run. Each case is a
process of its own; `allocated` and `reserved` are torch's own peaks, the first over four steps, the second since the weights
began to arrive."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fresh import measured, run_all

SHAPES = {"q06": "qwen3-0.6b", "q17": "qwen3-1.7b", "q8": "qwen3-8b", "l8": "llama3-8b"}
CASES = (
    "q17-none-1", "q17-ddp-2", "q17-fsdp2-2", "q17-fsdp2-8", "q17-fsdp2-8-nll", "q17-fsdp2-8-16k", "q17-fsdp2-8-16k-nll",
    "q8-ddp-2", "q8-fsdp2-2", "q8-fsdp2-8", "q8-fsdp2-8-16k", "q8-fsdp2-8-16k-nll",
)  # fmt: skip
STEPS = 4
MORE = {"nll": ["loss.type=nll", "loss.kernel=full"], "16k": ["run.batch_size=4", "run.accumulation=1"]}
TOY = ["model=tiny", "model.hidden=64", "model.layers=4", "truncation.max_length=96", "optimizer.fused=false"]


def prepared(case: str, toy: bool, more: list[str]) -> Callable[[], dict[str, Any]]:
    """Everything that a case needs, and its prediction, without touching the GPU."""
    name, strategy, world, *further = case.split("-")
    place = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "RANK": "0", "LOCAL_RANK": "0"}
    os.environ.update(place if strategy != "none" else {})
    import torch  # noqa: F401
    import transformers  # noqa: F401

    import memcfg
    from memcfg.registry import load

    folder = Path(tempfile.mkdtemp(prefix="one-rank-"))
    rows = folder / "rows.jsonl"
    text = " ".join(f"w{n % 1000}" for n in range(90 if toy else 3000))
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for _ in range(12 * int(world))))
    shape = TOY if toy else ["model=shape", f"model.preset={SHAPES[name]}", "truncation.max_length=4096"]
    registry = load()
    plan = memcfg.resolve(
        [*shape, "data=jsonl", f"data.path={rows}", "packing=bfd_split", "run.batch_size=1", "run.accumulation=2",
         f"run.steps={STEPS}", "run.log_steps=1", "run.warmup_steps=0", f"distributed={strategy}", f"run.dir={folder}",
         *(word for name in further for word in MORE[name]), *more]
    )  # fmt: skip
    hooks = registry.hooks(plan)
    said = predicted(plan, registry)
    return lambda: trained(plan, hooks, folder, int(world)) | said


def predicted(plan: Any, registry: Any) -> dict[str, Any]:
    from memcfg.planner.predict import predict

    found = predict(plan, registry, fresh=True)
    return {"predicted": found.allocated_bytes, "predicted_reserved": found.reserved_bytes, "phase": found.peak_phase,
            "kinds": dict(found.kinds), "seconds": found.seconds}  # fmt: skip


def trained(plan: Any, hooks: Any, folder: Path, world: int) -> dict[str, Any]:
    """The peaks of a few steps of the first of `world` processes."""
    import torch
    import torch.distributed as dist

    from memcfg.engine.build import build
    from memcfg.engine.joining import join
    from memcfg.engine.trainer import EngineTrainer

    if world > 1:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    join(plan, hooks)
    with undrawn():
        run = build(plan, hooks)
    watch = watching(plan.device)
    trainer = EngineTrainer(run, folder, callbacks=[watch])
    watch.trainer = trainer
    trainer.check_loss = lambda: None  # type: ignore[method-assign]  # no number here means anything
    trainer.train()
    wrapped = trainer.model_wrapped
    in_force = run.spread.in_force(wrapped) if run.spread is not None else ("none", type(wrapped).__name__)
    assert in_force[0] == plan["distributed.strategy"], in_force
    tokens = max(b.input_ids.numel() for b in trainer.loader.at(0, 0))
    return {
        "allocated": max(watch.peaks), "by_step": watch.peaks, "reserved": watch.reserved, "in_force": in_force[1],
        "tokens": tokens, "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if plan.device == "cuda" else "cpu",
    }  # fmt: skip


def undrawn() -> Any:
    """Weights of ones: drawing eight billion numbers on the host takes longer than all the rest, and what they are is of no
    interest here."""
    from unittest.mock import patch

    import torch

    return patch("memcfg_model.shape._weights", lambda like, device, _: torch.ones_like(like, device=device))


def watching(device: str) -> Any:
    """Peaks of each step. On a CPU what a step adds at most to what was there before."""
    import torch
    from transformers import TrainerCallback

    from memcfg.testing import PeakMemory

    class Watch(TrainerCallback):
        trainer: Any
        peaks: list[int]
        reserved = 0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.peaks = []
            wrapped = self.trainer.model_wrapped
            if hasattr(wrapped, "register_comm_hook"):
                wrapped.register_comm_hook(None, as_it_is)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            else:
                self.peak = PeakMemory().__enter__()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if device == "cuda":
                self.peaks.append(torch.cuda.max_memory_allocated())
                self.reserved = max(self.reserved, torch.cuda.max_memory_reserved(), torch.cuda.memory_reserved())
            else:
                self.peak.__exit__(None, None, None)
                self.peaks.append(self.peak.bytes)

    return Watch()


def as_it_is(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations here, and takes no strings
    """What DDP waits for: its bucket, averaged with nobody's. A fake group's own answer is none that it takes."""
    import torch

    done: Any = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def show(file: Path) -> None:
    """The table of what was measured."""
    print("| case | allocated GiB | predicted | error | reserved GiB | predicted | error |\n|" + " --- |" * 7)
    for line in map(json.loads, file.read_text().splitlines()):
        if "allocated" not in line:
            print(f"| {line['case']} | {line.get('error', '')[-200:]} |")
            continue
        cells = [line["case"]]
        for real, said in (("allocated", "predicted"), ("reserved", "predicted_reserved")):
            error = f"{100 * (line[said] / line[real] - 1):+.3f} %" if line[real] else ""
            cells += [f"{line[real] / 2**30:.3f}", f"{line[said] / 2**30:.3f}", error]
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/one_rank.jsonl"))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--show", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", help="further choices")
    asked = parser.parse_args()
    if asked.show is not None:
        show(asked.show)
    elif asked.case is not None:
        measured(lambda: prepared(asked.case, asked.toy, asked.overrides))
    else:
        rest = [*(["--toy"] if asked.toy else []), *asked.overrides]
        run_all(__file__, asked.cases.split(","), rest, asked.out, timeout=180, ahead=2)
        show(asked.out)


if __name__ == "__main__":
    main()
