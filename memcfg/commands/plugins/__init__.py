"""`memcfg plugins`: who contributes what, what is broken, and what an author wants to know of a plugin.

memcfg plugins                       all that is installed
memcfg plugins show NAME             everything that one plugin brings
memcfg plugins test NAME             the kit's checks of an installed plugin
memcfg plugins trace [OVERRIDES]     every hook call of a short run, with plugin and milliseconds
memcfg plugins new NAME              a package to start from
"""

from __future__ import annotations

import importlib
from typing import Final

from memcfg.commands.arguments import Arguments
from memcfg.compose.spelling import nearest
from memcfg.errors import Problem, RequestError
from memcfg.report.console import Terminal
from memcfg.report.words import listed

PARTS: Final = {"list": "listing", "show": "show", "test": "examine", "trace": "trace", "new": "new"}
"""The second word of the command, and the module that answers it."""


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Hand over to the part that answers; without a second word that is the listing."""
    name = arguments.rest.pop(0) if arguments.rest else "list"
    if name not in PARTS:
        fix = f"`plugins` is followed by {listed(PARTS)}, or by nothing"
        raise RequestError(Problem("nothing reads this", key=name, nearest=nearest(name, PARTS), fix=fix))
    return int(importlib.import_module(f"memcfg.commands.plugins.{PARTS[name]}").main(arguments, terminal))


def one_name(arguments: Arguments, usage: str) -> str:
    """The one word that there must be. Raises `RequestError`."""
    if len(arguments.rest) != 1:
        raise RequestError(Problem("one name is needed", fix=usage))
    return arguments.rest[0]
