"""`memcfg diff A B`: how two requests, or two plans, differ, and which rule makes the difference."""

from __future__ import annotations

import shlex

from memcfg.commands.arguments import Arguments
from memcfg.commands.sources import plan_of
from memcfg.errors import Problem, RequestError
from memcfg.report.console import Terminal

USAGE = 'write `memcfg diff "packing=bfd" "packing=bfd_split"`, or name a `resolved.yaml`; `""` is the plain run'


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print what differs. Exit code 0 for any answer, 2 where one side has no plan."""
    arguments.refuse_flags("json")
    return _diff(arguments, terminal)


def _diff(arguments: Arguments, terminal: Terminal) -> int:
    if len(arguments.rest) != 2:
        raise RequestError(Problem("`diff` compares two requests, each one word of the shell", fix=USAGE))
    from memcfg.compose.request import installed
    from memcfg.provenance import compare
    from memcfg.report import jsonform
    from memcfg.report.provenance import change_data, show_difference

    registry, (a, b) = installed(), arguments.rest
    plans = [plan_of(_words(side), registry, arguments.config_dir) for side in (a, b)]
    changes = compare(*plans)
    if arguments.has("json"):
        terminal.show(jsonform.text({"ok": True, "a": a, "b": b, "changes": [change_data(c) for c in changes]}))
    else:
        terminal.show(*show_difference(changes, (a, b)))
    return 0


def _words(side: str) -> list[str]:
    """The overrides in one word of the shell. Raises `RequestError` where its quotes do not match."""
    try:
        return shlex.split(side)
    except ValueError as error:
        raise RequestError(Problem(f"cannot be read: {str(error).lower()}", key=side)) from error
