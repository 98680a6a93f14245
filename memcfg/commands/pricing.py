"""What a request, or each repair of a conflict, would need: by simulation, which loads torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from memcfg.errors import ConflictError, Price
from memcfg.report.words import count

if TYPE_CHECKING:
    from memcfg.commands.arguments import Arguments
    from memcfg.plan import Plan
    from memcfg.registry import Registry
    from memcfg.report.console import Terminal

MOST: Final = 8
"""Repairs that are simulated: each takes a second or a few. Where there are more, somebody is to choose among names (32 shapes of
models), and the prices of the first few would say nothing of the others."""

Found = TypeVar("Found")


def pricing(
    wanted: Callable[[], Found], words: list[str], arguments: Arguments, registry: Registry, terminal: Terminal
) -> Found:
    """What `wanted` gives. Where it raises a `ConflictError`, that has the prices of its repairs."""
    try:
        return wanted()
    except ConflictError as error:
        repairs = error.repairs
        if len(repairs) > MOST:
            terminal.say(
                f"{len(repairs)} repairs are not simulated (at most {MOST} are): `predict` says what one needs"
            )
        elif repairs:
            terminal.say(f"simulating {count(len(repairs), 'repair')} ...")
            error.prices = tuple(repaired([*words, *repair], arguments, registry) for repair in repairs)
        raise


def repaired(words: list[str], arguments: Arguments, registry: Registry) -> Price:
    """The price of these overrides."""
    from memcfg.commands.supposed import composed

    silent = lambda *lines: None  # noqa: E731  # the price names the card that it is for
    try:
        return price(composed(words, arguments.config_dir, registry, silent)[1], registry)
    except Exception as error:  # whatever it is, the conflict is what there is to say
        return Price(None, reason=next(iter(str(error).splitlines()), type(error).__name__))


def price(plan: Plan, registry: Registry) -> Price:
    """The price of a plan. Raises what `predict` raises."""
    from memcfg.commands.train import calm_openmp
    from memcfg.planner.budget import budget_of
    from memcfg.planner.hosts import machine_of
    from memcfg.planner.predict import predict

    calm_openmp("cpu")
    machine = machine_of(plan)
    found, budget = predict(plan, registry, machine=machine), budget_of(plan, machine)
    verdict = None if budget is None else found.verdict(budget.bytes)
    return Price(found.needed_bytes, machine.name, verdict)
