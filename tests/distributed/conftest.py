"""Two processes that train many cases, and one that trains the same with the same global batch.

The pair is started once for a list of cases: importing takes longer than training."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("worker.py")
SMALL = (
    "model.hidden=32", "model.layers=2", "run.steps=3", "run.log_steps=1", "run.batch_size=1", "data=jsonl",
    "truncation.max_length=48", "optimizer=sgd", "run.learning_rate=0.5", "run.warmup_steps=0", "run.scheduler=constant",
    "data.eval_rows=3",
)  # fmt: skip
"""Plain gradient descent: weights after three steps differ as the gradients do, where Adam's would differ by the sign of
rounding errors."""


@dataclass(frozen=True)
class Case:
    """`accumulation` is that of two processes; one process takes twice as many micro-batches in a step."""

    name: str
    overrides: tuple[str, ...] = ()
    accumulation: int = 1


def documents(folder: Path, count: int = 9) -> str:
    """A file of prompts and completions of odd lengths. With three rows held out six are left: steps of four rows, and
    then one of two, in which a rank may have nothing of its own."""
    file = folder / "documents.jsonl"
    words = [
        "the",
        "sum",
        "of",
        "two",
        "numbers",
        "is",
        "even",
        "when",
        "both",
        "are",
        "odd",
        "and",
        "never",
        "otherwise",
    ]
    rows = [
        {"prompt": " ".join(words[: 1 + i % 5]), "completion": " " + " ".join(words[i % 3 : 4 + 3 * (i % 4)])}
        for i in range(count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return f"data.path={file}"


def pairs(folder: Path, count: int = 9) -> str:
    file = folder / "pairs.jsonl"
    rows = [
        {
            "prompt": f"Say number {i}.",
            "chosen": f" It is {i}{' indeed' * (i % 5)}.",
            "rejected": f" No{' way' * (i % 3)} {i}.",
        }
        for i in range(count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return f"data.path={file}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(python: str, folder: Path, cases: Sequence[Mapping[str, Any]], world: int) -> dict[str, dict[str, Any]]:
    """What the first of `world` processes found, by the name of the case."""
    folder.mkdir(parents=True)
    (folder / "cases.json").write_text(json.dumps(list(cases)))
    command = [python, str(WORKER), str(folder), str(folder / "cases.json")]
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELERATE_", "FSDP_"))}
    shared = plain | {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    meeting = {
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    places = [shared] if world == 1 else [
        shared | meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)
    ]  # fmt: skip
    logs = [folder / f"rank{rank}.log" for rank in range(world)]
    ranks = []
    for place, log in zip(places, logs, strict=True):
        with log.open("w") as said:
            ranks.append(subprocess.Popen(command, env=place, stdout=said, stderr=subprocess.STDOUT))
    try:
        for rank in ranks:
            rank.wait(timeout=900)
    finally:
        for rank in ranks:
            rank.kill()
    found = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json") if file.stem != "cases"}
    codes = [rank.returncode for rank in ranks]
    assert codes == [0] * world, "\n".join(log.read_text()[-3000:] for log in logs)
    return found


@pytest.fixture
def by_two(tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a script as two processes that torchrun starts. Each writes what it found to `RANK.json` in the folder that the script
    is given, the test's own; gives both."""

    def ran(script: str, python: str = sys.executable, timeout: float = 600) -> list[Any]:
        (tmp_path / "script.py").write_text(script)
        launch = [python, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(free_port())]
        done = subprocess.run(
            [*launch, str(tmp_path / "script.py"), str(tmp_path)], capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]

    return ran


@pytest.fixture(scope="session")
def in_processes(warm_python: str) -> Callable[..., dict[str, dict[str, Any]]]:
    """`run`, for tests."""
    return partial(run, warm_python)


@pytest.fixture(scope="session")
def case_of() -> type[Case]:
    """The class of cases, for tests (a conftest cannot be imported)."""
    return Case


Compared = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="session")
def compared(
    tmp_path_factory: pytest.TempPathFactory, warm_python: str
) -> Callable[[Sequence[tuple[str, Case]]], dict[tuple[str, str], Compared]]:
    """Trains (strategy, case) in two processes and each case in one: what both found."""

    def both(wanted: Sequence[tuple[str, Case]]) -> dict[tuple[str, str], Compared]:
        folder = tmp_path_factory.mktemp("ranks")
        data = {"dpo": pairs(folder), "sft": documents(folder)}

        def overrides(case: Case, accumulation: int, *more: str) -> list[str]:
            trainer = "dpo" if "trainer=dpo" in case.overrides else "sft"
            return [*SMALL, data[trainer], *case.overrides, f"run.accumulation={accumulation}", *more]

        alone = {case.name: case for _, case in wanted}
        one = run(
            warm_python,
            folder / "one",
            [{"name": n, "overrides": overrides(c, 2 * c.accumulation)} for n, c in alone.items()],
            1,
        )
        two = run(
            warm_python,
            folder / "two",
            [
                {"name": f"{s} {c.name}", "overrides": overrides(c, c.accumulation, f"distributed={s}")}
                for s, c in wanted
            ],
            2,
        )
        key = lambda name: name.replace(" ", "_")  # noqa: E731
        return {(s, c.name): (one[key(c.name)], two[key(f"{s} {c.name}")]) for s, c in wanted}

    return both
