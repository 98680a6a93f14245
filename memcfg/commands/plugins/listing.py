"""`memcfg plugins list`: a line for each installed plugin. Broken ones are part of it; they stop nothing here."""

from __future__ import annotations

from memcfg.commands.arguments import Arguments
from memcfg.errors import Problem, RequestError
from memcfg.report.console import Terminal
from memcfg.report.words import listed


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print the listing."""
    arguments.refuse_flags("json")
    if arguments.rest:
        fix = "write `memcfg plugins show NAME` for one of them"
        raise RequestError(Problem("`plugins list` takes no further words", key=arguments.rest[0], fix=fix))
    from memcfg.registry import load
    from memcfg.registry.loader import strangers

    plugins = load(strict=False).plugins
    if arguments.has("json"):
        from memcfg.report import jsonform

        terminal.show(jsonform.text(jsonform.plugins(plugins)))
    else:
        from memcfg.report.plugins import show_plugins

        terminal.show(*show_plugins(plugins))
        for variable, names in strangers().items():
            terminal.show("", f"note: no installed plugin is called {listed(names)}, which `{variable}` names")
    return 0
