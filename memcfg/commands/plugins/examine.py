"""`memcfg plugins test NAME`: the kit's checks of an installed plugin."""

from __future__ import annotations

from memcfg.commands.arguments import Arguments
from memcfg.commands.plugins import one_name
from memcfg.report.console import Terminal


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print a line for each check. Exit code 0: no fault was found, 1: some was."""
    arguments.refuse_flags("json")
    name = one_name(arguments, "write `memcfg plugins test NAME`")
    from memcfg.commands.plugins.named import named
    from memcfg.registry import load
    from memcfg.report import jsonform
    from memcfg.report.plugins import show_checks
    from memcfg.testing.examination import examine

    found = named(name, load(strict=False))
    checks = list(examine(found))
    faults = [check for check in checks if check.result == "fault"]
    if arguments.has("json"):
        told = [{"check": c.name, "result": c.result, "details": list(c.lines)} for c in checks]
        terminal.show(jsonform.text({"ok": not faults, "plugin": found.name, "checks": told}))
    else:
        terminal.show(*show_checks(found, checks))
    return 1 if faults else 0
