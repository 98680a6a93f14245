"""What is on the command line: flags, a command, and the rest.

Hydra's own flags keep their meaning. A word without `=` in front is a command; everything else is an override (or, for
`run`, a file), in the order in which it was typed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from memcfg.commands import COMMANDS, TRAIN
from memcfg.compose.spelling import nearest
from memcfg.errors import Problem, RequestError

if TYPE_CHECKING:
    from memcfg.report.console import Terminal

SWITCHES: Final = {
    "--help": "help", "-h": "help", "--version": "version", "--json": "json", "--yaml": "yaml", "--all": "all",
    "--quiet": "quiet", "-q": "quiet", "--verbose": "verbose", "-v": "verbose", "--no-color": "no_color", "--multirun": "multirun", "-m": "multirun",
    "--resolve": "resolve", "--hydra-help": "hydra_help", "--shell-completion": "shell_completion",
    "-sc": "shell_completion", "--run": "run", "-r": "run", "--local": "local",
    "--fresh": "fresh", "--price": "price", "--open": "open",
}  # fmt: skip
VALUED: Final = {
    "--cfg": "cfg", "-c": "cfg", "--package": "package", "-p": "package", "--info": "info", "-i": "info",
    "--config-dir": "config_dir", "-cd": "config_dir", "--html": "html", "--png": "png",
    "--exercised": "exercised", "--out": "out", "--kind": "kind", "--license": "license", "--into": "into",
}  # fmt: skip
REFUSED: Final = {
    "--config-name": "the primary config is generated from what is installed",
    "-cn": "the primary config is generated from what is installed",
    "--config-path": "the primary config is generated from what is installed",
    "-cp": "the primary config is generated from what is installed",
    "--experimental-rerun": "a run is repeated from its plan",
}
INSTEAD: Final = {
    "--experimental-rerun": "write `memcfg run RUN/resolved.yaml`",
    "": "store choices in `FOLDER/experiment/NAME.yaml` and write `--config-dir FOLDER experiment=NAME`",
}
MENUS: Final = {
    "cfg": ("job", "hydra", "all"),
    "info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
}
_COMMAND = re.compile(r"^[A-Za-z][\w-]*$")


@dataclass
class Arguments:
    """`flags` holds the switches that were given; `rest` the overrides, or a command's own words."""

    command: str | None = None
    rest: list[str] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)

    def has(self, flag: str) -> bool:
        return flag in self.flags or flag in self.values

    @property
    def name(self) -> str:
        return self.command or TRAIN

    @property
    def config_dir(self) -> str | None:
        return self.values.get("config_dir")

    def terminal(self) -> Terminal:
        """The terminal as the flags want it, for a command that reads its words itself."""
        from memcfg.report.console import Terminal

        return Terminal(
            quiet=self.has("quiet"), verbose=self.has("verbose"), json=self.has("json"), color=not self.has("no_color")
        )

    def refuse_flags(self, *accepted: str) -> None:
        """Raise `RequestError` for a flag that this command does not read."""
        common = {"quiet", "verbose", "no_color", "config_dir", "run", "local"}
        stray = sorted((self.flags | set(self.values)) - common - set(accepted))
        if stray:
            names = {name: said for said, name in (*SWITCHES.items(), *VALUED.items()) if said.startswith("--")}
            raise RequestError(*(Problem(f"`{self.name}` does not read this flag", key=names[flag]) for flag in stray))


def read(argv: Sequence[str], raw: Sequence[str] = ()) -> Arguments:
    """Read the command line. What follows a command in `raw` is left to it. Raises `RequestError` for unknown flags."""
    found, words = Arguments(), deque(argv)
    while words:
        word = words.popleft()
        if word.startswith("-") and word != "-":
            _flag(word, words, found)
        elif found.command is None and not found.rest and _COMMAND.match(word):
            found.command = word
            if word in raw:
                found.rest.extend(words)
                words.clear()
        else:
            found.rest.append(word)
    return found


def _flag(word: str, words: deque[str], found: Arguments) -> None:
    name, given, value = word.partition("=")
    if name in SWITCHES and not given:
        found.flags.add(SWITCHES[name])
    elif name in VALUED:
        _valued(name, value if given else None, words, found)
    elif name in REFUSED:
        raise RequestError(Problem(REFUSED[name], key=name, fix=INSTEAD.get(name, INSTEAD[""])))
    else:
        known = [flag for flag in (*SWITCHES, *VALUED) if flag.startswith("--")]
        raise RequestError(Problem("no such flag", key=word, nearest=nearest(name, known)))


def _is_value(word: str, menu: tuple[str, ...]) -> bool:
    """Whether a word after `--info` is meant for it: a misspelt one too, but neither a command nor an override."""
    return word in menu or (_COMMAND.match(word) is not None and word not in COMMANDS)


def _valued(name: str, value: str | None, words: deque[str], found: Arguments) -> None:
    flag = VALUED[name]
    menu = MENUS.get(flag, ())
    if value is None and flag == "info" and not (words and _is_value(words[0], menu)):
        value = "all"
    if value is None and not words:
        raise RequestError(Problem("needs a value", key=name))
    value = words.popleft() if value is None else value
    if menu and value not in menu:
        raise RequestError(Problem(f"takes one of {', '.join(menu)}, not `{value}`", key=name))
    found.values[flag] = value
