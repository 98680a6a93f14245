"""What the live run really does, read back and compared with the plan.

A technique that was asked for and did not happen (or happened otherwise) costs a night of training when it is a log line;
here it stops the run after its first step and names the option."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memcfg.errors import Problem, RunError
from memcfg.solver.expr import same, show

if TYPE_CHECKING:
    from memcfg.engine.build import Run
    from memcfg.plan import Plan


@dataclass(frozen=True)
class Effective:
    """The value of one option as found in the live run. `evidence` says where it was seen: "28 of 28 layers ..."."""

    key: str
    effective: Any
    evidence: str


def gather(run: Run) -> list[Effective]:
    """The engine's own findings and those of every active plugin. Called once the first step has run."""
    return run.hooks.evidence(plan=run.plan, run=run, found=own(run))


def own(run: Run) -> list[Effective]:
    """What the engine itself can read back: where the model is, how the batches lie, the first learning rate."""
    devices = sorted({p.device.type for p in run.model.parameters()})
    found = [Effective("device.type", devices[0] if len(devices) == 1 else devices, f"parameters on {devices}")]
    layouts = sorted({b.layout for b in run.first})
    if run.plan.get("batch.layout") is not None and layouts:
        value = layouts[0] if len(layouts) == 1 else layouts
        found.append(Effective("batch.layout", value, f"{len(run.first)} micro-batches of the first step"))
    rates = {g.get("initial_lr", g["lr"]) for g in run.optimizer.param_groups}
    if len(rates) == 1:
        groups = len(run.optimizer.param_groups)
        found.append(Effective("run.learning_rate", rates.pop(), f"{groups} parameter group(s) of the optimizer"))
    return found


def compare(plan: Plan, found: Iterable[Effective]) -> None:
    """Raises `RunError` with one problem for each option whose effective value is not the resolved one."""
    wrong = [e for e in found if e.key in plan and not _equal(plan[e.key], e.effective)]
    if wrong:
        raise RunError(*(Problem(_difference(plan, e), key=e.key) for e in wrong))


def to_dict(plan: Plan, found: Iterable[Effective]) -> dict[str, dict[str, Any]]:
    """Plain data for `effective.json`: `{KEY: {"resolved", "effective", "evidence"}}`."""
    return {
        e.key: {"resolved": plan.get(e.key), "effective": e.effective, "evidence": e.evidence}
        for e in sorted(found, key=lambda e: e.key)
    }


def _equal(resolved: Any, effective: Any) -> bool:
    """As options compare, save that 1 and 1.0 are one learning rate."""
    numbers = (int, float)
    if type(resolved) in numbers and type(effective) in numbers:
        return bool(resolved == effective)
    return same(resolved, effective)


def _difference(plan: Plan, found: Effective) -> str:
    return f"the plan says {show(plan[found.key])}, the run did {show(found.effective)} ({found.evidence})"
