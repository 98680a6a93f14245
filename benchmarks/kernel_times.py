"""Where a step's time goes on a GPU: each operation's kernels by what the operation was given, and the host's time apart.

    python benchmarks/kernel_times.py --out results/kernel_times.jsonl                     six configurations, about 60 s of one GPU
    python benchmarks/kernel_times.py --out FILE --cases q06-rows-1                        some of `predict.py`'s
    python benchmarks/kernel_times.py --out FILE --cases "model=tiny run.batch_size=2"     any choices; small ones run on a CPU

Configurations are those of `predict.py`, each in a process of its own. Four steps are timed as there (`step_ms`), and of each
what the host took before it had launched everything in the forward, backward and optimizer's part (`host_ms`, the fastest). One
more is recorded by torch's profiler: `ops` has for each operator and the shapes it was given its calls and the microseconds of
its kernels; `kernels` the kernels themselves, among them those that no operator launched (Triton's). Under the profiler the host is
slower, kernels are not."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from fresh import program
from predict import CONFIGURATIONS
from updates import Subject, ready, versions

CASES = ("q06-chunked-ckpt", "g1-chunked", "l1-chunked", "q06-rows-1", "q17-bfd-8k", "q06-offload-all")
STEPS = 5


def prepared(case: str, asked: argparse.Namespace) -> Callable[[], dict[str, Any]]:
    """A case with everything loaded."""
    import torch.profiler  # noqa: F401

    plan, hooks = ready([*CONFIGURATIONS.get(case, case).split(), *asked.overrides])
    return lambda: _measured(plan, hooks)


def _measured(plan: Any, hooks: Any) -> dict[str, Any]:
    import torch

    subject = Subject.built(plan, hooks)
    run, count = subject.run, subject.count
    device = next(run.model.parameters()).device
    placed = [batch.to(device) for batch in subject.batches]
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    taken = [_step(run, placed, count, wait) for _ in range(STEPS)][1:]
    host = {phase: round(min(one[phase] for one in taken), 3) for phase in taken[0] if phase != "step"}
    with torch.profiler.profile(record_shapes=True) as profile:
        _step(run, placed, count, wait)
    return {
        "step_ms": round(min(one["step"] for one in taken), 3), "host_ms": host, **versions(), **_kernels(profile),
    }  # fmt: skip


def _step(run: Any, placed: list[Any], count: Any, wait: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds of one step, and of the host in each of its parts; those of several micro-batches are added up."""
    from contextlib import nullcontext

    from memcfg.engine.update import Ranks, gradients, step

    taken = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    last = [0.0]

    def since(phase: str) -> None:
        now = time.perf_counter()
        taken[phase] += 1e3 * (now - last[0])
        last[0] = now

    def backward(loss: Any) -> None:
        since("forward")
        loss.backward()
        since("backward")

    wait()
    began = last[0] = time.perf_counter()
    ranks = Ranks(accumulate=lambda model, final: nullcontext(), backward=backward)
    gradients(run.model, placed, run.objective, contexts=run.contexts, denominator=count, ranks=ranks)
    step(run.model, run.optimizer, max_grad_norm=run.plan.get("run.max_grad_norm"))
    since("optimizer")
    wait()
    return {**taken, "step": 1e3 * (time.perf_counter() - began)}


def _kernels(profile: Any) -> dict[str, Any]:
    """`[operator, shapes, calls, device microseconds]` and `[kernel, calls, device microseconds]`, the longest first."""
    from torch.autograd import DeviceType

    ops, kernels = [], []
    for row in profile.key_averages(group_by_input_shape=True):
        if row.device_type == DeviceType.CUDA:
            kernels.append((row.key[:120], row.count, round(row.self_device_time_total, 1)))
        elif row.self_device_time_total or not profile.profiler.use_device:
            ops.append((row.key, row.input_shapes, row.count, round(row.self_device_time_total, 1)))
    return {"ops": sorted(ops, key=lambda r: -r[3]), "kernels": sorted(kernels, key=lambda r: -r[2])}


if __name__ == "__main__":
    program(__file__, __doc__, CASES, prepared, out="kernel_times.jsonl")
