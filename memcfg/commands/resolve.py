"""`memcfg resolve`: the plan and the reason for every value, without loading what would run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcfg.commands.arguments import Arguments
from memcfg.errors import Price, Problem, RequestError
from memcfg.report.console import Terminal
from memcfg.report.errors import price_lines

if TYPE_CHECKING:
    from memcfg.plan import Plan


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print the plan: a table, or with `--json` and `--yaml` the whole of it. Exit code 2 if there is none."""
    arguments.refuse_flags("json", "yaml", "all", "price")
    if arguments.has("json") and arguments.has("yaml"):
        raise RequestError(Problem("the plan has one form at a time", key="--yaml", fix="leave `--json` out"))
    if arguments.has("json"):
        return _json(arguments, terminal)
    plan, price = _priced(arguments, terminal)
    if arguments.has("yaml"):
        from memcfg.planfile import dumps

        terminal.show(dumps(plan).rstrip())
    else:
        from memcfg.report.plan import show_plan

        terminal.show(*show_plan(plan, everything=arguments.has("all")))
        if price is not None:
            terminal.show("", *price_lines(price))
        warn_of_broken(terminal)
    return 0


def warn_of_broken(terminal: Terminal) -> None:
    """Say which plugins could not be used: what they offer is missing from every menu."""
    from memcfg.registry import load

    for plugin in load().broken:
        terminal.say(f"warning: plugin `{plugin.name}` ({plugin.distribution}) is broken; see `memcfg plugins`")


def _priced(arguments: Arguments, terminal: Terminal) -> tuple[Plan, Price | None]:
    """The plan, and where `--price` asks for it what one step of it needs; torch is loaded for that alone."""
    from memcfg.compose import resolve
    from memcfg.compose.request import installed

    registry = installed()
    wanted = lambda: resolve(arguments.rest, registry=registry, config_dir=arguments.config_dir)  # noqa: E731
    if not arguments.has("price"):
        return wanted(), None
    from memcfg.commands.pricing import pricing, repaired

    plan = pricing(wanted, arguments.rest, arguments, registry, terminal)
    return plan, repaired(arguments.rest, arguments, registry)


def _json(arguments: Arguments, terminal: Terminal) -> int:
    from memcfg.report import jsonform

    plan, price = _priced(arguments, terminal)
    data = jsonform.success(plan)
    terminal.show(jsonform.text(data if price is None else {**data, "price": jsonform.price(price)}))
    return 0
