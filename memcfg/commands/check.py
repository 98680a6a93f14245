"""`memcfg check`: build a run, prove its first step, and train nothing."""

from __future__ import annotations

from typing import Any

from memcfg.commands.arguments import Arguments
from memcfg.commands.train import calm_openmp, refuse_assumed
from memcfg.report.console import Terminal


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print what the canaries and the evidence saw. Exit code 0: all is as the plan says."""
    arguments.refuse_flags("json")
    return _check(arguments, terminal)


def _check(arguments: Arguments, terminal: Terminal) -> int:
    from memcfg.compose import compose
    from memcfg.compose.facts import learnt
    from memcfg.compose.request import installed
    from memcfg.report import jsonform
    from memcfg.report.checked import checked_text
    from memcfg.report.progress import TrainingTalk

    registry = installed()
    request = compose(arguments.rest, registry=registry, config_dir=arguments.config_dir)
    plan = registry.plan(request)
    refuse_assumed(plan)
    _, plan = learnt(request, plan, registry)
    registry.preflight(plan, terminal.say)
    hooks = registry.hooks(plan)
    calm_openmp(plan.device)
    from memcfg.engine.checking import check
    from memcfg.engine.joining import leave

    found = check(plan, hooks, reporter=TrainingTalk(terminal))
    leave()
    terminal.show(jsonform.text(as_json(found)) if arguments.has("json") else checked_text(found))
    return 0


def as_json(found: Any) -> dict[str, Any]:
    """What was seen, as plain data."""
    from dataclasses import asdict

    return {"ok": True, **asdict(found)}
