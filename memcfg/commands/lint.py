"""`memcfg lint`: faults in the rules of what is installed."""

from __future__ import annotations

from pathlib import Path

from memcfg.commands.arguments import Arguments
from memcfg.errors import Problem, RequestError
from memcfg.files import reason
from memcfg.report.console import Terminal


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print what is wrong. Exit code 0: nothing is, 1: something."""
    arguments.refuse_flags("json", "all", "exercised")
    return _lint(arguments, terminal)


def _lint(arguments: Arguments, terminal: Terminal) -> int:
    if arguments.rest:
        fix = "`lint` looks at every request, so it takes no overrides"
        raise RequestError(*(Problem("nothing reads this", key=word, fix=fix) for word in arguments.rest))
    from memcfg.registry import load
    from memcfg.registry.lint import lint_installed
    from memcfg.report import jsonform
    from memcfg.report.lint import lint_data, show_lint

    registry = load(strict=False)
    file = arguments.values.get("exercised")
    linted = lint_installed(registry, None if file is None else _ids(Path(file)))
    if arguments.has("json"):
        terminal.show(jsonform.text(lint_data(linted, registry.theory)))
    else:
        terminal.show(*show_lint(linted, registry.theory, everything=arguments.has("all")))
    return 1 if linted.found else 0


def _ids(file: Path) -> set[str]:
    """The ids in a file, one a line."""
    try:
        return set(file.read_text(encoding="utf-8").split())
    except OSError as error:
        raise RequestError(Problem(f"cannot read `{file}`: {reason(error)}", key="--exercised")) from error
