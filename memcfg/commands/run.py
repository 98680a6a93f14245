"""`memcfg run RUN/resolved.yaml`: train a plan again, without resolving anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memcfg.commands.arguments import Arguments
from memcfg.commands.older import completed
from memcfg.commands.train import execute, refuse_assumed, resumed_in
from memcfg.errors import Problem, RequestError, RunError
from memcfg.planfile import FILE
from memcfg.report.console import Terminal
from memcfg.report.words import of
from memcfg.solver.expr import PENDING, UNSET, same

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Train the plan in a new folder, or in its own if that is named and was not used, or is gone on in. Refuses any override
    but `run.dir` and `run.resume`, and a host for which it was not made."""
    arguments.refuse_flags("json")
    file, run_dir, resume = _read(arguments.rest)
    from memcfg.compose.request import installed
    from memcfg.planfile import load, revealed

    plan = revealed(load(file), os.environ)
    registry = installed()
    refuse_assumed(plan)
    refuse_other_host(plan, registry)
    plan = completed(plan, registry, terminal)
    if resume is not None:
        run_dir = str(file.parent) if run_dir is None and resume == "auto" else run_dir
        plan = _with(plan, "run.resume", resume)
    if run_dir is not None and Path(run_dir).resolve() == file.parent.resolve():
        if resumed_in(plan, file.parent) is None:
            refuse_used(file.parent)
        execute(plan, registry, terminal, file.parent, in_place=True)
    else:
        if resume is None and plan.get("run.resume") == "auto":
            plan = _with(plan, "run.resume", None)  # in a new folder there is nothing to go on from
        execute(placed(plan, run_dir), registry, terminal)
    return 0


def refuse_used(folder: Path) -> None:
    """Raise `RunError` where a plan was run in its own folder already."""
    if any((folder / name).exists() for name in ("metrics.jsonl", "effective.json", "model")):
        raise RunError(Problem(f"`{folder}` already holds a run", key="run.dir", fix="choose another `run.dir`"))


def _read(words: list[str]) -> tuple[Path, str | None, str | None]:
    """The plan's file, the new folder, and what to go on from. Raises `RequestError` for anything else."""
    files = [word for word in words if "=" not in word and not word.startswith("~")]
    others = [word for word in words if word not in files and not word.startswith(("run.dir=", "run.resume="))]
    if others:
        fix = "a plan is run as it was resolved; resolve anew to change it"
        text = "`run` takes no override but `run.dir` and `run.resume`"
        raise RequestError(*(Problem(text, key=word, fix=fix) for word in others))
    if len(files) != 1:
        raise RequestError(Problem("`run` takes one plan", fix="write `memcfg run RUN/resolved.yaml`"))
    file = Path(files[0])
    stated = {word.partition("=")[0]: word.partition("=")[2] for word in words if word not in files}
    return (file / FILE if file.is_dir() else file), stated.get("run.dir"), stated.get("run.resume")


def refuse_other_host(plan: Plan, registry: Registry) -> None:
    """Raise `RunError` where a fact that some rule read is another here: the plan might be another, too."""
    from memcfg.compose.facts import probe

    asked = {key: d.requested for key, d in plan.decisions.items() if d.requested is not UNSET}
    here = probe(registry, asked)
    known = [fact for fact in plan.fact_reads if here.get(fact, PENDING) is not PENDING]
    differ = [fact for fact in known if not same(here[fact], plan.decisions[fact].value)]
    if differ:
        raise RunError(*(_differs(fact, plan.get(fact), here[fact]) for fact in differ))


def _differs(fact: str, then: Any, now: Any) -> Problem:
    text = f"the plan was made where this is `{of(fact, then)}`, and here it is `{of(fact, now)}`"
    return Problem(text, key=fact, fix="resolve the request again on this host")


def placed(plan: Plan, run_dir: str | None) -> Plan:
    """The plan with its new folder in it, so that the new run's file says where it lies."""
    return _with(plan, "run.dir", run_dir)


def _with(plan: Plan, key: str, value: str | None) -> Plan:
    from dataclasses import replace

    if key not in plan.decisions:
        return plan
    decision = replace(plan.decisions[key], value=value, requested=value if value else UNSET)
    return replace(plan, decisions={**plan.decisions, key: decision})
