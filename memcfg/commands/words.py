"""Words of a command's own among the overrides: `plan.axes=[...]`, `sweep.invalid=fail`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memcfg.compose.spelling import nearest
from memcfg.errors import Problem, RequestError


def own_words(
    words: Sequence[str], section: str, menus: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], list[str]]:  # fmt: skip
    """The values that `section.name=value` gives to the names of `menus`, and the other words. Raises `RequestError`
    for a name or a value that is not there."""
    said: dict[str, str] = {}
    rest: list[str] = []
    problems: list[Problem] = []
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if not key.startswith(f"{section}."):
            rest.append(word)
        elif (fault := _fault(key, value, section, menus)) is not None:
            problems.append(fault)
        else:
            said[key.removeprefix(f"{section}.")] = value
    if problems:
        raise RequestError(*problems)
    return said, rest


def _fault(key: str, value: str, section: str, menus: Mapping[str, Sequence[str]]) -> Problem | None:
    name = key.removeprefix(f"{section}.")
    if name not in menus:
        return Problem("no such option", key=key, nearest=nearest(key, [f"{section}.{other}" for other in menus]))
    if value not in menus[name]:
        menu = ", ".join(f"`{other}`" for other in menus[name])
        return Problem(f"`{value}` is not one of {menu}", key=key, nearest=nearest(value, menus[name]))
    return None
