"""What another program's config says, and what that program takes where it says nothing.

An `Arg` is one argument of the other program: its kind, its default, and what becomes of it here. `Said` gives values
by name and remembers which were asked for, so that nothing that was written can be forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from memcfg import Problem
from memcfg.report.words import value as shown

if TYPE_CHECKING:
    from memcfg_migrate.outcome import Outcome


@dataclass(frozen=True)
class Given:
    """One value that was written. `label` is its name as a reader of the file knows it, `where` its file and line."""

    label: str
    value: Any
    where: str

    def __str__(self) -> str:
        return f"`{self.label}={shown(self.value)}` ({self.where})"


@dataclass(frozen=True)
class Unread:
    """An argument whose value is not written in the file: an expression that only running the program would tell."""

    name: str
    label: str
    text: str
    where: str


Becomes = Callable[["Said", str, "Outcome"], None]
"""What a value becomes: told the config, the argument's name and where to write the result."""


@dataclass(frozen=True)
class Arg:
    """`kind`: int, float, bool, str, list, dict or any, with `?` where null is a value. `becomes`: None if a function
    that knows several arguments at once takes it."""

    name: str
    kind: str
    default: Any
    becomes: Becomes | None = None


@dataclass
class Source:
    """What was found in a file. `trainers`: names of trainers that its form gives away."""

    path: str
    given: dict[str, Given] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)
    trainers: tuple[str, ...] = ()
    remarks: list[tuple[str, str, str]] = field(default_factory=list)
    """What else was seen: kind, name, text."""


class Said:
    """The values of one config. Values of a wrong kind count as not given and are in `problems`."""

    def __init__(self, source: Source, args: Iterable[Arg]) -> None:
        self.args: dict[str, Arg] = {arg.name: arg for arg in args}
        self.source = source
        self.unread = {unread.name for unread in source.unread}
        self.taken: set[str] = set()
        self.problems: list[Problem] = []
        self._given = {name: read for name in source.given if (read := self._read(name)) is not None}

    def _read(self, name: str) -> Given | None:
        given = self.source.given[name]
        if name not in self.args:
            return None
        try:
            return Given(given.label, _as(self.args[name].kind, given.value), given.where)
        except (ValueError, OverflowError):
            text = f"`{shown(given.value)}` is {KINDS[self.args[name].kind.rstrip('?')]} ({given.where})"
            self.problems.append(Problem(text, key=given.label))
            self.taken.add(name)
            return None

    def __getitem__(self, name: str) -> Any:
        """The value, or the other program's default."""
        self.taken.add(name)
        found = self._given.get(name)
        return self.args[name].default if found is None else found.value

    def __contains__(self, name: str) -> bool:
        """Whether a value other than the default was given."""
        found = self._given.get(name)
        return found is not None and not equal(found.value, self.args[name].default)

    def written(self, name: str) -> Given | None:
        """What was written, be it the default or not."""
        return self._given.get(name)

    def text(self, name: str) -> str:
        """How a reader knows the value. What is told is taken."""
        self.taken.add(name)
        if name in self._given:
            return str(self.source.given[name])
        return f"`{name.rpartition('.')[2]}={shown(self.args[name].default)}` (default)"

    def where(self, name: str) -> str:
        found = self.source.given.get(name)
        return found.where if found is not None else "default"

    def label(self, name: str) -> str:
        found = self.source.given.get(name)
        return found.label if found is not None else name

    def unknown(self) -> list[Given]:
        """What was written and is no argument of the other program."""
        return [given for name, given in self.source.given.items() if name not in self.args]

    def forgotten(self) -> list[str]:
        """Values that differ from the default and that nothing has asked for."""
        return [name for name in self._given if name in self and name not in self.taken]

    def kept(self) -> dict[str, bool]:
        """What was written, as `text` tells it, and whether it is the default."""
        return {str(self.source.given[name]): name not in self for name in self._given}


def equal(a: Any, b: Any) -> bool:
    """Equality that tells 1 from true."""
    return type(a) is type(b) and a == b if isinstance(a, bool) or isinstance(b, bool) else bool(a == b)


KINDS: Final = {
    "int": "no whole number", "float": "no number", "bool": "neither true nor false", "str": "no text",
    "list": "no list", "numbers": "no list of numbers", "names": "no name and no list of names", "dict": "no mapping", "any": "no value",
}  # fmt: skip


def _as(kind: str, value: Any) -> Any:
    """The value as its kind. Raises `ValueError` where it is of another."""
    if kind.endswith("?"):
        return None if value is None or value in ("none", "null", "None") else _as(kind[:-1], value)
    return _READ[kind](value)


def _int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(value)
    return int(value) if not isinstance(value, (list, dict, type(None))) else _refuse(value)


def _float(value: Any) -> float:
    """Text too: YAML takes `2e-5` for a word. What is not finite is no number."""
    found = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else _refuse(value)
    return found if math.isfinite(found) else float(_refuse(value))


def _bool(value: Any) -> bool:
    words = {"true": True, "false": False}
    said = words.get(value.lower()) if isinstance(value, str) else value
    return said if isinstance(said, bool) else bool(_refuse(value))


def _str(value: Any) -> str:
    return value if isinstance(value, str) else _refuse(value)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else _refuse(value)


def _numbers(value: Any) -> list[float]:
    return [_float(item) for item in _list(value)]


def _dict(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else _refuse(value)


def _names(value: Any) -> list[str]:
    """Names in a list, or in a text with commas between them."""
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    return [_str(item) for item in _list(value)]


def _refuse(value: Any) -> Any:
    raise ValueError(value)


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "int": _int, "float": _float, "bool": _bool, "str": _str, "list": _list, "numbers": _numbers, "names": _names, "dict": _dict, "any": lambda value: value,
}  # fmt: skip
