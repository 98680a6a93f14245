"""`memcfg plugins`: who contributes what, and what is broken."""

from __future__ import annotations

from memcfg.commands.arguments import Arguments
from memcfg.errors import Problem, RequestError
from memcfg.report.console import Terminal


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print the listing. Broken plugins are part of it; they stop nothing here."""
    arguments.refuse_flags("json")
    if arguments.rest and arguments.rest != ["list"]:
        raise RequestError(Problem("`plugins` takes no words but `list`", key=arguments.rest[0]))
    from memcfg.registry import load

    plugins = load(strict=False).plugins
    if arguments.has("json"):
        from memcfg.report import jsonform

        terminal.show(jsonform.text(jsonform.plugins(plugins)))
    else:
        from memcfg.report.plugins import show_plugins

        terminal.show(*show_plugins(plugins))
    return 0
