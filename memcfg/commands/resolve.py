"""`memcfg resolve`: the plan and the reason for every value, without loading what would run it."""

from __future__ import annotations

from memcfg.commands.arguments import Arguments
from memcfg.errors import Problem, RequestError
from memcfg.report.console import Terminal


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print the plan: a table, or with `--json` and `--yaml` the whole of it. Exit code 2 if there is none."""
    arguments.refuse_flags("json", "yaml", "all")
    if arguments.has("json") and arguments.has("yaml"):
        raise RequestError(Problem("the plan has one form at a time", key="--yaml", fix="leave `--json` out"))
    if arguments.has("json"):
        return _json(arguments, terminal)
    plan = _resolved(arguments)
    if arguments.has("yaml"):
        from memcfg.planfile import dumps

        terminal.show(dumps(plan).rstrip())
    else:
        from memcfg.report.plan import show_plan

        terminal.show(*show_plan(plan, everything=arguments.has("all")))
        warn_of_broken(terminal)
    return 0


def warn_of_broken(terminal: Terminal) -> None:
    """Say which plugins could not be used: what they offer is missing from every menu."""
    from memcfg.registry import load

    for plugin in load().broken:
        terminal.say(f"warning: plugin `{plugin.name}` ({plugin.distribution}) is broken; see `memcfg plugins`")


def _resolved(arguments: Arguments):  # type: ignore[no-untyped-def]
    from memcfg.compose import resolve

    return resolve(arguments.rest, config_dir=arguments.config_dir)


def _json(arguments: Arguments, terminal: Terminal) -> int:
    from memcfg.report import jsonform

    terminal.show(jsonform.text(jsonform.success(_resolved(arguments))))
    return 0
