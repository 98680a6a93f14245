"""What a word on the command line can become: commands, flags, groups and their choices, options and their values, files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memcfg.commands.arguments import MENUS, SWITCHES, VALUED
from memcfg.solver.expr import show

if TYPE_CHECKING:
    from memcfg.registry import Registry
    from memcfg.solver.expr import Option

Candidate = tuple[str, str]
"""The whole word, and what it means."""

PATHS: Final = ("path", "dir", "folder", "file", "teacher", "resume")
"""Last parts of keys whose values are files or folders."""
FILES_FOR: Final = ("run", "report", "from-trl")
"""Commands whose first word is a file or a folder."""
SIZES: Final = ("8gib", "16gib", "24gib", "48gib", "80gib")
"""Budgets to begin with: a unit is needed, and seen here."""
OWN: Final = {
    "plugins": ("list", "show", "test", "trace", "new"),
    "completion": ("bash", "zsh", "fish"),
}
"""Commands with words of their own."""


def candidates(words: Sequence[str]) -> list[Candidate]:
    """What the last of `words` can become, each once, in order. `words` leaves the program's name out."""
    *before, word = words
    flag = VALUED.get(before[-1]) if before else None
    if flag is not None:
        return _flag_value(flag, word)
    if word.startswith("-"):
        return _starting(word, ((name, "") for name in (*SWITCHES, *VALUED) if name.startswith("--")))
    return list(dict.fromkeys(_word(_said(before), word)))


def _said(before: Sequence[str]) -> list[str]:
    """The words that are no flags, nor values of flags."""
    found, skip = [], False
    for word in before:
        if not skip and not word.startswith("-"):
            found.append(word)
        skip = word in VALUED
    return found


def _flag_value(flag: str, word: str) -> list[Candidate]:
    menu = MENUS.get(flag)
    if menu:
        return _starting(word, ((value, "") for value in menu))
    return files(word, folders=flag == "config_dir")


def _starting(word: str, found: Iterable[Candidate]) -> list[Candidate]:
    return [(name, doc) for name, doc in found if name.startswith(word)]


def _word(said: Sequence[str], word: str) -> Iterator[Candidate]:
    from memcfg.commands.help import commands
    from memcfg.registry import load

    registry = load(strict=False)
    named = bool(said) and "=" not in said[0] and not said[0].startswith(("+", "~"))
    if not said:
        yield from _starting(word, commands(registry).items())
    if named and len(said) == 1 and said[0] in OWN:
        yield from _starting(word, ((name, "") for name in OWN[said[0]]))
    elif named and said[0] in FILES_FOR and len(said) == 1:
        yield from files(word)
    elif named and said[0] == "plugins" and said[1:] in (["show"], ["test"]):
        yield from _starting(word, ((plugin.name, plugin.distribution) for plugin in registry.plugins))
    elif named and said[0] == "explain" and len(said) == 1:
        yield from _starting(word, ((key, option.doc) for key, option in registry.options.items()))
    else:
        yield from overrides(registry, word)


# ----------------------------------------------------------------------------------------------------------- overrides


def overrides(registry: Registry, word: str) -> Iterator[Candidate]:
    """What an override can become. A mark in front (`+`, `~`) stays there."""
    mark = word[: len(word) - len(word.lstrip("+~"))]
    name, given, value = word.removeprefix(mark).partition("=")
    found = _values(registry, name, value) if given else _names(registry, name, mark)
    yield from ((f"{mark}{said}", doc) for said, doc in found)


def _names(registry: Registry, word: str, mark: str) -> Iterator[Candidate]:
    """Groups and sections; the keys of a section once it is named."""
    after = "" if mark.startswith("~") else "="
    settable = {key: option for key, option in registry.options.items() if option.role in ("choice", "setting")}
    if "." in word:
        yield from _starting(word, ((f"{key}{after}", option.doc) for key, option in settable.items()))
        yield from _starting(word, ((f"{key}{after}", doc) for key, doc in _more(registry).items()))
        return
    docs = registry.groups()
    yield from _starting(word, ((f"{group}{after}", docs.get(group, "")) for group in _choices(registry)))
    sections = dict.fromkeys(key.partition(".")[0] for key in (*settable, *_more(registry)))
    yield from _starting(word, ((f"{section}.", f"options of {section}") for section in sections))
    yield from _starting(word, [("budget=", "memory that the run may use")])


def _more(registry: Registry) -> dict[str, str]:
    """Keys that are no options: facts to assume, words of commands."""
    from memcfg.commands.plan import WORDS
    from memcfg.commands.sweep import WORDS as SWEEP

    facts = {f"assume.{key}": option.doc for key, option in registry.options.items() if option.role == "fact"}
    words = {**{f"plan.{word}": "" for word in WORDS}, **{f"sweep.{word}": "" for word in SWEEP}}
    return {"assume.device": "resolve for this device", **facts, **words, "hydra.sweep.dir": "where a sweep's jobs lie"}


def _values(registry: Registry, name: str, value: str) -> Iterator[Candidate]:
    """Values of a group or an option; of several (`a,b`, `[a,b`) the last is completed."""
    cut = max(value.rfind(","), value.rfind("["), value.rfind("(")) + 1
    lead, word = value[:cut], value[cut:]
    if _is_path(registry, name):
        yield from ((f"{name}={lead}{path}", doc) for path, doc in files(word))
    else:
        menu = _menu(registry, name)
        yield from ((f"{name}={lead}{said}", doc) for said, doc in menu if said.startswith(word))


def _menu(registry: Registry, name: str) -> list[Candidate]:
    groups = _choices(registry)
    if name in groups:
        return [(choice, "") for choice in dict.fromkeys([*groups[name], "none"])]
    if name == "assume.device":
        from memcfg.core.cards import CARDS

        return [(card, "") for card in ("cpu", *CARDS)]
    if name in ("budget", "budget.bytes"):
        return _budgets()
    if name.startswith("sweep."):
        from memcfg.commands.sweep import WORDS as SWEEP

        return [(word, "") for word in SWEEP.get(name.removeprefix("sweep."), ())]
    option = registry.options.get(name.removeprefix("assume."))
    return [] if option is None else _option_values(option)


def _budgets() -> list[Candidate]:
    """Cards, whose memory a budget may be, and sizes; null for none."""
    from memcfg.core.cards import CARDS

    cards = [(card, f"{known.memory / 2**30:.1f} GiB") for card, known in CARDS.items()]
    return [*cards, *((size, "") for size in SIZES), ("null", "")]


def _option_values(option: Option) -> list[Candidate]:
    known: tuple[Any, ...] = option.values or ((True, False) if option.kind == "bool" or option.type is bool else ())
    found = [(show(value), "") for value in known]
    default = option.default
    if not found and isinstance(default, (int, float, str)) and default != "":
        found = [(show(default), "the default")]
    return [*found, *([("null", "")] if option.nullable else [])]


def _is_path(registry: Registry, name: str) -> bool:
    leaf = name.rpartition(".")[2]
    stated = any(leaf == part or leaf.endswith(f"_{part}") for part in PATHS)
    return stated and ("hydra." in name or name in registry.options)


def _choices(registry: Registry) -> dict[str, list[str]]:
    from memcfg.commands.help import conf_folders, group_names

    return group_names(conf_folders(registry.conf_paths()))


# --------------------------------------------------------------------------------------------------------------- files


def files(word: str, *, folders: bool = False) -> list[Candidate]:
    """Files and folders whose names begin so, folders with a slash; `folders`: nothing else. Hidden ones only if asked for."""
    head, _, start = word.rpartition("/")
    place = Path(os.path.expanduser(head) if head else "/" if word.startswith("/") else ".")
    try:
        found = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return []
    lead = f"{head}/" if "/" in word else ""
    shown = (
        entry
        for entry in found
        if entry.name.startswith(start) and (start.startswith(".") or not entry.name.startswith("."))
    )
    return [(f"{lead}{e.name}{'/' if e.is_dir() else ''}", "") for e in shown if e.is_dir() or not folders]
