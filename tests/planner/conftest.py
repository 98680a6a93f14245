"""What a real step on the CPU allocates, seen by torch's profiler: no dispatch mode, which would change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from memcfg.compose import resolve
from memcfg.engine.build import build
from memcfg.engine.update import counted, gradients, step
from memcfg.plan import Plan
from memcfg.planner.batches import Lengths, full_rows, micro_batches
from memcfg.planner.hosts import machine_of
from memcfg.planner.simulate import record
from memcfg.planner.trace import Trace
from memcfg.registry import Registry, load
from memcfg.testing import PeakMemory

SMALL = (
    "model.hidden=64", "model.layers=3", "truncation.max_length=96", "run.batch_size=2", "model.tied=false",
)  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="session")
def registry() -> Registry:
    return load()


@pytest.fixture
def planned(registry: Registry) -> Callable[..., Plan]:
    def make(*overrides: str) -> Plan:
        return resolve([*SMALL, *overrides], registry=registry)

    return make


@dataclass
class Growth:
    """Bytes by which memory grows within one step, at its highest, over what is there when the step begins."""

    peak: int
    phases: dict[str, int]


@pytest.fixture
def simulated(registry: Registry) -> Callable[[Plan], Growth]:
    return lambda plan: simulated_growth(plan, registry)


@pytest.fixture
def measured(registry: Registry) -> Callable[[Plan], int]:
    return lambda plan: measured_growth(plan, registry)


def simulated_growth(plan: Plan, registry: Registry, lengths: Lengths | None = None) -> Growth:
    """The growth within the second step of the simulation."""
    recorded = record(plan, registry.hooks(plan), machine_of(plan), lengths)
    return growth(recorded.trace, len(recorded.step_began))


def growth(trace: Trace, number: int) -> Growth:
    """The growth within a step of a trace; phase by phase, each over the step's beginning."""
    marks = [(at, phase) for at, of, phase in trace.marks if of == number and phase != "input"]
    begin, live, phases = marks[0][0], 0, dict[str, int]()
    for event in trace.events[:begin]:
        live += trace.births[event - 1].size if event > 0 else -trace.births[-event - 1].size
    start = live
    for (at, phase), (end, _) in zip(marks, [*marks[1:], (len(trace.events), "")], strict=True):
        for event in trace.events[at:end]:
            live += trace.births[event - 1].size if event > 0 else -trace.births[-event - 1].size
            phases[phase] = max(phases.get(phase, 0), live - start)
    return Growth(max(phases.values()), phases)


def measured_growth(plan: Plan, registry: Registry, lengths: Lengths | None = None) -> int:
    """The growth within the second step of the real run."""
    hooks = registry.hooks(plan)
    run = build(plan, hooks, device="cpu", data=False)
    batches = micro_batches(plan, hooks, run.tokenizer, run.layout, {}, lengths or full_rows(plan))
    count = counted(run.objective, batches)

    def once() -> None:
        gradients(run.model, batches, run.objective, contexts=run.contexts, denominator=count)
        step(run.model, run.optimizer, max_grad_norm=plan.get("run.max_grad_norm"))

    once()
    with PeakMemory() as peak:
        once()
    return peak.bytes
