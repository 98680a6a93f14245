"""Which third-party plugins a request leaves on: `plugins.only` and `plugins.off`, names of plugins or distributions.

They are options like any other, so a preset may set them and the plan says who did. The environment's lists hold before:
what it switches off is not even imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from memcfg.errors import Problem, RequestError
from memcfg.registry.installed import Installed, described
from memcfg.registry.loader import normal
from memcfg.solver.request import Choice, Request

ONLY: Final = "plugins.only"
OFF: Final = "plugins.off"


class Lists(NamedTuple):
    """The names that a request gives, and where it says so."""

    only: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    only_from: str = ""
    off_from: str = ""


def lists(request: Request) -> Lists:
    """What the request says. Raises `RequestError` for something that is no list of names."""
    (only, only_from), (off, off_from) = _said(request, ONLY), _said(request, OFF)
    return Lists(only, off, only_from, off_from)


def _said(request: Request, key: str) -> tuple[tuple[str, ...], str]:
    choice = request.choices.get(key, Choice([], ""))
    names = [choice.value] if isinstance(choice.value, str) else choice.value
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        text = f"`{choice.value}` is no list of names"
        raise RequestError(Problem(text, key=key, fix=f"write `{key}=[NAME,NAME]`; `memcfg plugins` lists the names"))
    return tuple(names), choice.origin


def narrowed(plugins: Sequence[Installed], said: Lists) -> list[Installed]:
    """The plugins, those that the lists leave out marked as off. Raises `RequestError` for a name that no plugin has,
    and for a plugin of memcfg's own in `plugins.off`."""
    only, off = {normal(name): name for name in said.only}, {normal(name): name for name in said.off}
    _refuse_unknown(plugins, {**dict.fromkeys(said.only, ONLY), **dict.fromkeys(said.off, OFF)})
    result = []
    for plugin in plugins:
        names = {normal(plugin.name), plugin.distribution}
        if plugin.first_party and normal(plugin.name) in off:
            raise RequestError(Problem(f"{described(plugin)} is part of memcfg and cannot be switched off", key=OFF))
        if plugin.first_party or plugin.status == "off":
            result.append(plugin)
        elif names & off.keys():
            result.append(replace(plugin, status="off", error=f"switched off by `{OFF}` ({said.off_from})"))
        elif only and not names & only.keys():
            result.append(replace(plugin, status="off", error=f"not among those of `{ONLY}` ({said.only_from})"))
        else:
            result.append(plugin)
    return result


def _refuse_unknown(plugins: Sequence[Installed], named: dict[str, str]) -> None:
    import difflib

    known = {word: word for plugin in plugins for word in (normal(plugin.name), plugin.distribution)}
    problems = [
        Problem(
            f"no installed plugin is called `{name}`", key=key,
            nearest=tuple(difflib.get_close_matches(normal(name), known, n=1)), fix="`memcfg plugins` lists them",
        )
        for name, key in named.items() if normal(name) not in known
    ]  # fmt: skip
    if problems:
        raise RequestError(*problems)
