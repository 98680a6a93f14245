"""What a written value means for the option it is written for, before any rule sees it.

YAML and the command line have several words for nothing, and sizes have units. Types, ranges and menus are checked by
the solver; here only the notation is settled, alike for files and for the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from memcfg.compose.sizes import SMALLEST_BUDGET, size
from memcfg.compose.spelling import nearest
from memcfg.compose.vocabulary import SHORT
from memcfg.core.cards import CARDS
from memcfg.errors import Problem, RequestError
from memcfg.solver.expr import UNSET, Option, show

MISSING: Final = "???"
"""OmegaConf's mark for a key that nobody set."""


def meaning(key: str, option: Option | None, value: Any, origin: str) -> Any:
    """The value itself, or `UNSET` where writing it chooses nothing. Raises `RequestError` for a wrong notation."""
    if isinstance(value, str) and value == MISSING:
        return UNSET
    if option is None:  # a removed key: that it was mentioned is all that matters
        return value
    if value == "" and _nothing(option) is UNSET:
        fix = f"give it a value, or leave it out: `~{key}`"
        raise RequestError(Problem(f"nothing is given ({origin})", key=key, fix=fix))
    if value is None or value == "":
        return _nothing(option)
    if _is_python_none(option, value):
        fix = (
            f"write `{key}=null`" if option.nullable else f"leave `{key}` out, or write `{key}=null`, to leave it unset"
        )
        raise RequestError(Problem(f"`None` is text here, not nothing ({origin})", key=key, fix=fix))
    if value == "auto" and option.kind == "enum" and "auto" not in option.values:
        return UNSET
    return _sized(key, option, value, origin)


def emptied(option: Option | None, value: Any) -> str | None:
    """What an empty text stands for, as it would be written; None for any other value."""
    if option is None or value != "" or (meant := _nothing(option)) is UNSET:
        return None
    return show(meant)


def _nothing(option: Option) -> Any:
    """null: the value null where the option has one, else `none` from its menu, else no choice."""
    if option.nullable:
        return None
    return "none" if option.kind == "enum" and "none" in option.values else UNSET


def _is_python_none(option: Option, value: Any) -> bool:
    return isinstance(value, str) and value.strip() in ("None", "NONE") and value not in option.values


def _sized(key: str, option: Option, value: Any, origin: str) -> Any:
    if option.unit != "bytes":
        return value
    budget = option.key in SHORT.values()
    card = CARDS.get(value.lower()) if budget and isinstance(value, str) else None
    if card is not None:
        return card.memory
    try:
        return size(value, bare_from=SMALLEST_BUDGET if budget else 0)
    except ValueError as error:
        near = tuple(f"{key}={name}" for name in nearest(str(value), CARDS)) if budget else ()
        raise RequestError(Problem(f"{error} ({origin})", key=key, nearest=near)) from error


def calls_code(value: Any) -> bool:
    """Whether a value holds `_target_` anywhere inside."""
    if isinstance(value, Mapping):
        return "_target_" in value or any(calls_code(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(calls_code(item) for item in value)
