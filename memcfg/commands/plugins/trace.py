"""`memcfg plugins trace [OVERRIDES]`: every hook call of a short run, with the plugin that answered and how long it took."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from memcfg.commands.arguments import Arguments
from memcfg.commands.train import calm_openmp, planned
from memcfg.errors import MemcfgError, Problem, RequestError
from memcfg.report.console import Terminal

if TYPE_CHECKING:
    from memcfg.registry.hooks import Hooks

STEPS = "run.steps=2"
"""How long the run is, unless the overrides say otherwise."""


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Train for two steps in a folder that is thrown away, and print the calls in the order in which they returned. Where
    the run fails the calls until then are printed before the error."""
    arguments.refuse_flags("json")
    from memcfg.compose import compose
    from memcfg.compose.request import installed
    from memcfg.report import jsonform
    from memcfg.report.plugins import show_calls

    registry = installed()
    request = compose([STEPS, *arguments.rest], registry=registry, config_dir=arguments.config_dir)
    if "run.dir" in request.choices:
        fix = "leave it out: the traced run trains in a folder that is thrown away"
        raise RequestError(Problem("nothing reads this here", key="run.dir", fix=fix))
    hooks = registry.hooks(plan := planned(request, registry, terminal))
    calm_openmp(plan.device)
    try:
        _train(hooks, terminal)
    except MemcfgError:
        if not arguments.has("json"):
            terminal.show(*show_calls(hooks.calls))
        raise
    if arguments.has("json"):
        terminal.show(jsonform.text({"ok": True, "calls": [call._asdict() for call in hooks.calls]}))
    else:
        terminal.show(*show_calls(hooks.calls))
    return 0


def _train(hooks: Hooks, terminal: Terminal) -> None:
    from memcfg.engine.execute import train
    from memcfg.report.progress import TrainingTalk

    with tempfile.TemporaryDirectory(prefix="memcfg-trace-") as folder:
        train(hooks.plan, hooks, folder, reporter=TrainingTalk(terminal))
