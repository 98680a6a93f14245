"""The flags that Hydra answers: `--cfg`, `--info`, `--hydra-help`, `--shell-completion`."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

from memcfg.commands.arguments import Arguments
from memcfg.errors import RequestError
from memcfg.report.console import Terminal

if TYPE_CHECKING:
    from memcfg.compose.normalise import Normalised
    from memcfg.compose.tree import Tree

FLAGS = ("cfg", "info", "hydra_help", "shell_completion")


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Do what the flag says, for the overrides that were given."""
    arguments.refuse_flags(*FLAGS, "package", "resolve")
    from memcfg.compose.request import installed, prepare

    overrides = [] if arguments.has("shell_completion") else arguments.rest
    tree, normalised = prepare(overrides, installed(), arguments.config_dir)
    with redirect_stdout(
        StringIO()
    ) as printed:  # Hydra prints by itself, and what cannot be written would be its fault
        _answer(arguments, tree, normalised)
    if printed.getvalue():
        terminal.show(printed.getvalue().rstrip("\n"))
    return 0


def _answer(arguments: Arguments, tree: Tree, normalised: Normalised) -> None:
    from memcfg.compose import modes

    if arguments.has("shell_completion"):
        modes.shell_completion(tree, arguments.rest)
    elif normalised.problems:
        raise RequestError(*normalised.problems)
    elif arguments.has("hydra_help"):
        modes.hydra_help(tree, normalised)
    elif arguments.has("info"):
        modes.show_info(tree, normalised, arguments.values["info"])
    else:
        package = arguments.values.get("package")
        modes.show_config(tree, normalised, arguments.values["cfg"], package, arguments.has("resolve"))
