"""What the engine costs beside the same work in a bare `transformers.Trainer`: time of a step, and time until the first.

    python benchmarks/overhead.py --out results/overhead.jsonl                both, five pairs
    python benchmarks/overhead.py --out FILE --part steps --pairs 2 --steps 300

Steps: one tiny model, rows of 256 tokens, two in a step, nothing checkpointed, whole logits. Runs take turns (bare, memcfg,
memcfg, bare, ...) in one process; each gives the median over its steps after a tenth of them, each pair a ratio. The bare
Trainer computes the very loss that memcfg does (same head, same division), so that the difference is the engine's; a third
runner has Transformers' own loss. CPU seconds stand beside wall time, as they suffer less from neighbours.

Start: a script with a bare Trainer and `python -m memcfg`, each in a process of its own, on the same file of rows: seconds
from the start of the process until its first step begins. memcfg's include the solver and the canaries."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

LENGTH, ROWS = 256, 64
PLAN = (
    "model.hidden=128", "model.layers=2", "data=jsonl", "data.eval_rows=1", f"truncation.max_length={LENGTH}",
    "checkpointing=none", "loss.type=nll", "run.batch_size=2", "run.warmup_steps=0", "run.scheduler=constant",
    "run.learning_rate=0.001", "run.log_steps=50",
)  # fmt: skip


def rows_file(folder: Path) -> Path:
    """Texts of more than `LENGTH` tokens: every row is cut to the same width, and nothing is padded."""
    file = folder / "rows.jsonl"
    words = [f"word{i} and then" for i in range(LENGTH)]
    file.write_text("".join(json.dumps({"text": " ".join(words[i:] + words[:i])}) + "\n" for i in range(ROWS)))
    return file


# -------------------------------------------------------------------------------------------------------------- steps


class Clock:
    """Wall and CPU seconds of each step, from one step's end to the next one's."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self._last: tuple[float, float] | None = None

    def tick(self) -> None:
        now = (time.perf_counter(), time.process_time())
        if self._last is not None:
            self.wall.append(now[0] - self._last[0])
            self.cpu.append(now[1] - self._last[1])
        self._last = now

    def medians(self) -> dict[str, float]:
        skip = len(self.wall) // 10
        return {
            "wall_ms": 1e3 * statistics.median(self.wall[skip:]),
            "cpu_ms": 1e3 * statistics.median(self.cpu[skip:]),
        }


def ticking(clock: Clock) -> Any:
    from transformers.trainer_callback import TrainerCallback

    class Ticking(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tick()

    return Ticking()


def built(overrides: Sequence[str]) -> Any:
    import memcfg
    from memcfg.engine.build import build
    from memcfg.registry import load

    plan = memcfg.resolve(list(overrides))
    return build(plan, load().hooks(plan))


def engine(overrides: Sequence[str], folder: Path) -> dict[str, float]:
    import memcfg
    from memcfg.engine import course
    from memcfg.engine.execute import train
    from memcfg.registry import load

    clock = Clock()
    plan = memcfg.resolve(list(overrides))
    before = course.Course.on_step_end

    def ticked(self: Any, *arguments: Any, **named: Any) -> None:
        before(self, *arguments, **named)
        clock.tick()

    course.Course.on_step_end = ticked  # type: ignore[method-assign]
    try:
        train(plan, load().hooks(plan), folder)
    finally:
        course.Course.on_step_end = before  # type: ignore[method-assign]
    return clock.medians()


def bare(overrides: Sequence[str], folder: Path, *, own_loss: bool) -> dict[str, float]:
    """A Trainer on the same rows, model and optimizer. `own_loss`: Transformers' loss, else memcfg's."""
    import torch
    from transformers import Trainer

    from memcfg.engine.forward import detach_head
    from memcfg.engine.trainer import arguments

    run, clock = built(overrides), Clock()
    if own_loss:
        detach_head(run.model)
    collator: Any = run.collator

    class Bare(Trainer):
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            if own_loss:
                return super().compute_loss(model, inputs["own"], return_outputs, num_items_in_batch)
            return run.objective.loss_sum(model, inputs["batch"]) / run.objective.count(inputs["batch"])

        def _prepare_inputs(self, inputs: Any) -> Any:
            return inputs

    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        if own_loss:
            return {"own": {n: torch.tensor([row[n] for row in rows]) for n in ("input_ids", "labels")}}
        return {"batch": run.layout(collator(rows))}

    args = arguments(run.plan, folder)
    args.remove_unused_columns, args.logging_nan_inf_filter = False, True
    trainer = Bare(
        model=run.model, args=args, train_dataset=run.train, data_collator=collate, callbacks=[ticking(clock)],
        optimizers=(run.optimizer, None),
    )  # fmt: skip
    trainer.train()
    return clock.medians()


def steps(pairs: int, count: int) -> list[dict[str, Any]]:
    import torch
    from transformers import set_seed

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        file = rows_file(Path(scratch))
        overrides = [*PLAN, f"data.path={file}", f"run.steps={count}"]
        runners: dict[str, Callable[[Path], dict[str, float]]] = {
            "bare Trainer, same loss": lambda folder: bare(overrides, folder, own_loss=False),
            "bare Trainer, Transformers' loss": lambda folder: bare(overrides, folder, own_loss=True),
            "memcfg": lambda folder: engine([*overrides, f"run.dir={folder}"], folder),
        }
        for pair in range(pairs):
            order = list(runners) if pair % 2 == 0 else list(runners)[::-1]
            for name in order:
                set_seed(0)
                found.append(
                    {
                        "part": "steps",
                        "pair": pair,
                        "runner": name,
                        **runners[name](Path(scratch, f"{pair}{len(found)}")),
                    }
                )
                print(json.dumps(found[-1]), flush=True)
    return found


# -------------------------------------------------------------------------------------------------------------- start

SCRIPT = """
import json, sys, time
from importlib.resources import as_file, files
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Qwen3Config, Trainer
from transformers import TrainerCallback, TrainingArguments

class Begun(TrainerCallback):
    def on_step_begin(self, *_, **__):
        open(sys.argv[2], "w").write("begun")
        raise SystemExit

with as_file(files("memcfg_model") / "assets" / "tokenizer") as folder:
    tokenizer = AutoTokenizer.from_pretrained(folder)
rows = load_dataset("json", data_files=sys.argv[1], split="train")
rows = rows.map(lambda row: tokenizer(row["text"], truncation=True, max_length=256), remove_columns=["text"], batched=True)
config = Qwen3Config(vocab_size=len(tokenizer), hidden_size=128, intermediate_size=384, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, head_dim=32, use_cache=False)
args = TrainingArguments(sys.argv[3], max_steps=1, per_device_train_batch_size=2, use_cpu=True, report_to="none")
Trainer(model=AutoModelForCausalLM.from_config(config), args=args, train_dataset=rows, callbacks=[Begun()],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False)).train()
"""


def begun(command: Sequence[str], sign: Path, cwd: Path, caches: Path) -> dict[str, float]:
    """Seconds until `sign` appears, and CPU seconds of the process until it ends."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(caches)}
    start = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        while not sign.exists():
            if process.poll() is not None:
                raise SystemExit(f"{command} ended before its first step:\n{process.communicate()[1]}")
            time.sleep(0.01)
        wall = time.perf_counter() - start
        with open(f"/proc/{process.pid}/stat") as stat:  # user and system ticks so far
            ticks = stat.read().rsplit(")", 1)[1].split()[11:13]
        return {"wall_s": wall, "cpu_s": sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")}
    finally:
        process.kill()
        process.communicate()


def start(pairs: int) -> list[dict[str, Any]]:
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        file, script = rows_file(home), home / "bare.py"
        script.write_text(SCRIPT)
        for pair in range(-1, pairs):  # the first pair fills the caches of files and of prepared rows
            place = home / f"pair{pair}"
            place.mkdir()
            run = place / "run"
            commands = {
                "bare Trainer": (
                    [sys.executable, str(script), str(file), str(place / "begun"), str(place / "out")],
                    place / "begun",
                ),
                "memcfg": (
                    [sys.executable, "-m", "memcfg", *PLAN, f"data.path={file}", "run.steps=3", f"run.dir={run}"],
                    run / "metrics.jsonl",
                ),
            }
            for name in list(commands)[:: 1 if pair % 2 == 0 else -1]:
                command, sign = commands[name]
                line = {"part": "start", "pair": pair, "runner": name, **begun(command, sign, home, home / "caches")}
                if pair >= 0:
                    found.append(line)
                    print(json.dumps(line), flush=True)
    return found


# ------------------------------------------------------------------------------------------------------------ summary


def summary(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each peer the median over pairs of memcfg's ratio (steps) and difference in seconds (start)."""
    found = []
    for part, keys in (("steps", ("wall_ms", "cpu_ms")), ("start", ("wall_s", "cpu_s"))):
        of = {(line["pair"], line["runner"]): line for line in lines if line["part"] == part}
        for peer in dict.fromkeys(runner for _, runner in of if runner != "memcfg"):
            both = [(of[p, "memcfg"], of[p, r]) for p, r in of if r == peer and (p, "memcfg") in of]
            line: dict[str, Any] = {"part": part, "memcfg against": peer, "pairs": len(both)}
            for key in keys:
                change = [a[key] / b[key] if part == "steps" else a[key] - b[key] for a, b in both]
                line[key] = {"memcfg": statistics.median(a[key] for a, _ in both), "peer": statistics.median(b[key] for _, b in both),
                             "ratio" if part == "steps" else "difference": statistics.median(change)}  # fmt: skip
            found.append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=("steps", "start", "both"), default="both")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    asked = parser.parse_args()
    lines = [] if asked.part == "start" else steps(asked.pairs, asked.steps)
    lines += [] if asked.part == "steps" else start(asked.pairs)
    packages = {name: version(name) for name in ("torch", "transformers", "accelerate")}
    about = {"cpus": os.cpu_count(), "load": os.getloadavg(), "python": platform.python_version(), **packages}
    told = [{"about": about}, *summary(lines)]
    for line in told[1:]:
        print(json.dumps(line))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text("".join(json.dumps(line) + "\n" for line in [*told, *lines]))


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
