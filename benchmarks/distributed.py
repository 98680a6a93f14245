"""The strategies on any number of GPUs: the same steps as one, tokens a second, peak memory of each rank.

    python benchmarks/distributed.py --out one.jsonl                                        one GPU: what others are held to
    torchrun --nproc-per-node 2 benchmarks/distributed.py --out two.jsonl --base one.jsonl
    torchrun --nproc-per-node 2 benchmarks/distributed.py --out FILE --tiny                 small enough for a CPU
    torchrun --nproc-per-node 1 benchmarks/distributed.py --out FILE --alone                each strategy in a single process

`--alone` shows, where there is one GPU, that a strategy runs there with NCCL and takes the steps of none (memcfg itself refuses to
spread work over one process). It says nothing about speed on several.

Each line of the file is one training by `memcfg.engine.execute.train`: a published shape with random bfloat16 weights, rows
packed to 4,096 tokens, AdamW, the same rows in every step whatever the number of ranks.

    train     each strategy and shape: loss and gradient norm of each step, tokens a second (median after three steps), peak of
              each rank. With --base: largest relative difference of losses and norms from one GPU, and tokens a second of N
              GPUs divided by N times that one. Beside them what the planner predicts for one rank.
    loss      chunked_nll beside nll under fsdp2: peak of each rank
    head      under fsdp2: how often the shards of the output head are gathered in a step
    resume    each strategy: a run that goes on from its checkpoint beside the run that wrote it
    rollouts  GRPO under zero3 with the weights gathered for sampling and not: time and peak"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import memcfg
from memcfg.engine.execute import train
from memcfg.engine.joining import Group, spreads
from memcfg.errors import MemcfgError
from memcfg.registry import load

WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
STRATEGIES = ("ddp", "fsdp2", "zero2", "zero3")
WARM = 3
TOLERANCE = 2e-2
"""Largest relative difference of a bfloat16 loss or gradient norm that counts as the same step."""


def shape(name: str, tiny: bool) -> list[str]:
    return ["model=tiny", "model.hidden=64"] if tiny else ["model=shape", f"model.preset={name}"]


class Bench:
    """Where it runs, and the lines found so far."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.asked, self.folder, self.lines = asked, folder, []
        self.runs = 0
        self.rows = folder / "rows.jsonl"
        self.length = 64 if asked.tiny else 4096
        self.strategies = asked.strategies if WORLD > 1 or asked.alone else ["none"]
        if RANK == 0:
            folder.mkdir(parents=True, exist_ok=True)
            write_rows(self.rows, 4 * self.length * asked.rows * asked.steps // 16)

    def plan(self, shape: Sequence[str], strategy: str, *more: str) -> list[str]:
        """One row in a micro-batch, `--rows` in a step."""
        accumulation = max(1, self.asked.rows // WORLD)
        return [
            *shape, "data=jsonl", f"data.path={self.rows}", "data.eval_rows=1", "packing=bfd_split",
            f"truncation.max_length={self.length}", "run.batch_size=1", f"run.accumulation={accumulation}",
            f"run.steps={self.asked.steps}", "run.log_steps=1", "run.warmup_steps=0", "run.scheduler=constant",
            "run.learning_rate=1e-5", f"distributed={strategy}", *more,
        ]  # fmt: skip

    def trained(self, overrides: Sequence[str], folder: Path | None = None) -> dict[str, Any]:
        """Train, and what is found: losses, norms, rates, peaks of all ranks, and what an earlier run in this process left behind
        (DeepSpeed keeps its engines)."""
        free()
        self.runs += 1
        folder = folder or self.folder / f"run{self.runs}"
        held = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
        begin = time.perf_counter()
        plan = memcfg.resolve([*overrides, f"run.dir={folder}"])
        hooks = load().hooks(plan)
        train(plan, hooks, folder, group=alone(plan, hooks) if self.asked.alone else None)
        if RANK == 0:
            shutil.rmtree(folder / "model")
        peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
        peaks: list[Any] = [peak] * WORLD
        if WORLD > 1:
            dist.all_gather_object(peaks, peak)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "grad_norm" in line]
        return {
            "loss": [line["loss"] for line in steps], "grad_norm": [line["grad_norm"] for line in steps],
            "tokens_per_second": statistics.median([line["tokens_per_second"] for line in steps][WARM:] or [0.0]),
            "peak_bytes": peaks, "held_before_bytes": held, "seconds": time.perf_counter() - begin,
            **({"sampling_seconds": [line["sampling_seconds"] for line in steps]} if "sampling_seconds" in steps[-1] else {}),
        }  # fmt: skip

    def note(self, part: str, **found: Any) -> None:
        line = {"part": part, "world": WORLD, **found}
        self.lines.append(line)
        if RANK == 0:
            print(json.dumps(line), flush=True)

    def tried(self, part: str, name: dict[str, Any], do: Callable[[], dict[str, Any]]) -> None:
        """A line, also for what memcfg refuses: the same refusal in every rank."""
        try:
            self.note(part, **name, **do())
        except MemcfgError as error:
            self.note(part, **name, refused=str(error))


def write_rows(file: Path, words: int) -> None:
    """Texts of lognormal length, in the words of a small vocabulary."""
    draw, kept = random.Random(0), 0
    with file.open("w") as stream:
        while kept < words:
            count = max(4, min(4096, int(draw.lognormvariate(5.0, 0.9))))
            stream.write(json.dumps({"text": " ".join(f"w{draw.randrange(1000)}" for _ in range(count))}) + "\n")
            kept += count


def alone(plan: Any, hooks: Any) -> Group:
    """Everything that several processes do when they meet, in a single one."""
    if not spreads(plan):
        return Group()
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if plan.device == "cuda" else "gloo")
    hooks.spread(plan=plan).join()
    return Group()


def free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


# -------------------------------------------------------------------------------------------------------------- parts


def part_train(bench: Bench, base: dict[str, dict[str, Any]]) -> None:
    for name in bench.asked.shapes:
        for strategy in bench.strategies:

            def one(name: str = name, strategy: str = strategy) -> dict[str, Any]:
                overrides = bench.plan(shape(name, bench.asked.tiny), strategy)
                found = bench.trained(overrides)
                said = None if bench.asked.alone else predicted(overrides)
                return found | {"predicted_bytes": said} | beside(found, base.get(name), bench.asked.alone)

            bench.tried("train", {"shape": name, "strategy": strategy}, one)


def predicted(overrides: Sequence[str]) -> int | None:
    """The planner's peak of one rank; None on a CPU, and for strategies that cannot be predicted."""
    if not torch.cuda.is_available():
        return None
    from memcfg.planner.predict import predict

    try:
        return predict(memcfg.resolve(overrides), load()).allocated_bytes
    except MemcfgError:
        return None


def beside(found: dict[str, Any], one: dict[str, Any] | None, alone: bool) -> dict[str, Any]:
    """How far from one GPU; on several how well they are used."""
    if one is None:
        return {}
    apart = {
        key: max(abs(a - b) / abs(b) for a, b in zip(found[key], one[key], strict=True))
        for key in ("loss", "grad_norm")
    }
    same = {"apart": apart, "same": max(apart.values()) <= TOLERANCE}
    return same if alone else same | {"efficiency": found["tokens_per_second"] / (WORLD * one["tokens_per_second"])}


def part_loss(bench: Bench) -> None:
    for name in bench.asked.shapes:
        for loss in (["loss.type=chunked_nll"], ["loss.type=nll", "loss.kernel=full"]):
            bench.tried(
                "loss",
                {"shape": name, "head": loss[0]},
                lambda n=name, k=loss: bench.trained(bench.plan(shape(n, bench.asked.tiny), "fsdp2", *k)),
            )  # type: ignore[misc]


def part_head(bench: Bench) -> None:
    def one() -> dict[str, Any]:
        with gathers_of_head() as steps:
            bench.trained([*bench.plan(shape(bench.asked.shapes[0], bench.asked.tiny), "fsdp2"), "run.steps=2"])
        return {"micro_batches": max(1, bench.asked.rows // WORLD), "gathers": steps}

    bench.tried("head", {"strategy": "fsdp2"}, one)


@contextmanager
def gathers_of_head() -> Iterator[list[int]]:
    """How often the shards that hold the output head are gathered in each step."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as groups

    from memcfg.engine.trainer import EngineTrainer

    seen: list[str] = []
    steps: list[int] = []
    before, step = groups.FSDPParamGroup.unshard, EngineTrainer.training_step

    def unshard(self: Any, *arguments: Any, **named: Any) -> Any:
        names = [str(getattr(p, "_param_fqn", "")) for p in self.fsdp_params]
        head = [name for name in names if "lm_head" in name] or [name for name in names if "norm" in name]
        if not self.is_unsharded and head and not any("layers." in name for name in head):
            seen.append(head[0])
        return before(self, *arguments, **named)

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        start = len(seen)
        result = step(self, *arguments, **named)
        steps.append(len(seen) - start)
        return result

    groups.FSDPParamGroup.unshard, EngineTrainer.training_step = unshard, counted  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        groups.FSDPParamGroup.unshard, EngineTrainer.training_step = before, step  # type: ignore[method-assign]


def part_resume(bench: Bench) -> None:
    for strategy in bench.strategies:

        def one(strategy: str = strategy) -> dict[str, Any]:
            plan = [*bench.plan(shape(bench.asked.shapes[0], bench.asked.tiny), strategy), "run.steps=4"]
            first, again = bench.folder / f"whole-{strategy}", bench.folder / f"again-{strategy}"
            whole = bench.trained([*plan, "run.save_steps=2"], first)
            resumed = bench.trained([*plan, f"run.resume={first / 'checkpoint-2'}"], again)
            last = [whole["loss"][2:], resumed["loss"][-2:]]
            if RANK == 0:
                for folder in (first, again):
                    shutil.rmtree(folder)
            return {"losses": last, "apart": max(abs(a - b) for a, b in zip(*last, strict=True))}

        bench.tried("resume", {"strategy": strategy}, one)


def part_rollouts(bench: Bench) -> None:
    prompts = bench.folder / "prompts.jsonl"
    if RANK == 0:
        prompts.write_text("".join(json.dumps({"prompt": f"Count to {i}:"}) + "\n" for i in range(64)))
    for gather in ("true", "false"):
        plan = [
            *shape(bench.asked.shapes[0], bench.asked.tiny), "trainer=grpo", "data=jsonl", f"data.path={prompts}", "data.eval_rows=1",
            "run.steps=2", "run.log_steps=1", "distributed=zero3", f"zero3.gather_for_generation={gather}", *bench.asked.rollouts,
        ]  # fmt: skip
        bench.tried("rollouts", {"gather": gather}, lambda p=plan: bench.trained(p))  # type: ignore[misc]


PARTS = ("train", "loss", "head", "resume", "rollouts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", type=Path, help="what this script wrote with one GPU")
    parser.add_argument("--parts", default="train,loss,head,resume", help=f"of {','.join(PARTS)}")
    parser.add_argument("--strategies", type=lambda text: text.split(","), default=list(STRATEGIES))
    parser.add_argument("--shapes", type=lambda text: text.split(","), default=["qwen3-1.7b", "qwen3-8b"])
    parser.add_argument("--rows", type=int, default=8, help="packed rows in a step, over all ranks")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument(
        "--rollouts", nargs="*", default=["rewards.functions=[finished]"], help="overrides for GRPO's runs"
    )
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--alone", action="store_true", help="strategies in a single process, started by torchrun")
    asked = parser.parse_args()
    if asked.tiny:
        asked.shapes, asked.rows, asked.steps = ["tiny"], min(asked.rows, 4), min(asked.steps, 4)
    bench = Bench(asked, asked.out.parent / f"{asked.out.stem}-runs")
    base = {}
    if asked.base is not None:
        lines = [json.loads(line) for line in asked.base.read_text().splitlines()]
        base = {line["shape"]: line for line in lines if line.get("part") == "train"}
    for part in asked.parts.split(","):
        {"train": lambda: part_train(bench, base), "loss": lambda: part_loss(bench), "head": lambda: part_head(bench),
         "resume": lambda: part_resume(bench), "rollouts": lambda: part_rollouts(bench)}[part]()  # fmt: skip
        if bench.strategies == ["none"] and part == "train" and asked.parts == parser.get_default("parts"):
            break  # the other parts are about several
    about = {name: version(name) for name in ("torch", "transformers", "accelerate")}
    if RANK == 0:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        asked.out.write_text(
            "".join(json.dumps(x) + "\n" for x in [{"about": about | {"device": device}}, *bench.lines])
        )
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
