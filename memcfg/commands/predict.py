"""`memcfg predict`: the peak memory of a plan, on this machine or on a card that one does not have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memcfg.commands.arguments import Arguments
from memcfg.commands.pricing import pricing
from memcfg.commands.verdicts import no_plan
from memcfg.report.console import Terminal

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.planner import Prediction
    from memcfg.planner.budget import Budget
    from memcfg.planner.machine import Machine
    from memcfg.registry import Registry


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print the breakdown of one plan. Exit code 0: it fits, 1: it does not, 2: too close to call, or no plan at all."""
    arguments.refuse_flags("json", "html", "png", "fresh")
    with no_plan():
        return _predict(arguments, terminal)


def _predict(arguments: Arguments, terminal: Terminal) -> int:
    from memcfg.commands.supposed import composed
    from memcfg.compose.request import installed

    registry = installed()
    words = list(arguments.rest)
    wanted = lambda: composed(words, arguments.config_dir, registry, terminal.say)  # noqa: E731
    _, plan = pricing(wanted, words, arguments, registry, terminal)
    prediction, machine = predicted(plan, registry, terminal, fresh=arguments.has("fresh"))
    from memcfg.planner.budget import EXIT, budget_of

    budget = budget_of(plan, machine)
    if arguments.has("json"):
        from memcfg.report import jsonform

        terminal.show(jsonform.text(as_json(prediction, budget)))
    else:
        from memcfg.report.memory import show_prediction

        color = terminal.color and terminal.out.is_terminal
        terminal.show(*show_prediction(prediction, budget, color=color))
    _pictures(arguments, terminal, prediction, budget)
    return 0 if budget is None else EXIT[prediction.verdict(budget.bytes)]


def predicted(plan: Plan, registry: Registry, terminal: Terminal, *, fresh: bool = False) -> tuple[Prediction, Machine]:
    """The prediction and the machine it is for; says what goes on, as torch takes seconds to load."""
    from memcfg.commands.train import calm_openmp
    from memcfg.planner.hosts import machine_of
    from memcfg.planner.predict import predict

    calm_openmp("cpu")
    terminal.say("simulating one step ...")
    machine = machine_of(plan)
    return predict(plan, registry, machine=machine, fresh=fresh), machine


def as_json(prediction: Prediction, budget: Budget | None) -> dict[str, Any]:
    """What `predict --json` prints."""
    data = {"ok": True, **prediction.to_dict()}
    verdict = None if budget is None else prediction.verdict(budget.bytes)
    return data | {
        "budget_bytes": None if budget is None else budget.bytes,
        "fits": None if verdict in (None, "close") else verdict == "fits",
        "verdict": verdict,
    }


def _pictures(arguments: Arguments, terminal: Terminal, prediction: Prediction, budget: Budget | None) -> None:
    """The files that were asked for."""
    from memcfg.files import write_atomic

    if arguments.has("html"):
        from memcfg.report.memory_page import page_of

        write_atomic(Path(arguments.values["html"]), page_of(prediction, budget))
        terminal.say(f"wrote {arguments.values['html']}")
    if arguments.has("png"):
        from memcfg.report.memory_plot import png

        write_atomic(Path(arguments.values["png"]), png(prediction, budget))
        terminal.say(f"wrote {arguments.values['png']}")
