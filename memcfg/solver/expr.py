"""Options and the boolean expressions over them.

An option is one typed key. Comparing it builds an expression instead of answering; `&`, `|` and `~` combine them:

    packing = Enum("packing.strategy", ("bfd", "bfd_split", "wrapped", "none"), doc="how documents share a row")
    packs = packing.isin("bfd", "bfd_split") & key("trainer.name").isin("sft")

`key("a.b")` refers to an option that another plugin owns; it is looked up when the rule base is loaded. An expression
has no truth value of its own: `bool(expr)` raises, so that `and`, `or` and `not` cannot silently drop a part.

Roles: `choice` (the user may set it), `fact` (probed on the host), `derived` (only rules set it), `setting` (of any
type, given its default after the solve and never searched).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memcfg.errors import Source

_PLAIN: Final = re.compile(r"[A-Za-z_./][\w./:@-]*")
_WORDS: Final = ("true", "false", "null", "none", "nan", "inf")
"""What an override reads as something else than text."""


class _Symbol:
    """A value that no YAML can spell. Compared by identity; survives copying and pickling."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __reduce__(self) -> str:
        return self._name

    def __copy__(self) -> _Symbol:
        return self

    def __deepcopy__(self, memo: object) -> _Symbol:
        return self


UNSET: Final = _Symbol("UNSET")
"""The value of an option that nobody chose and no rule proposed. Not the same as `None`, which a user can choose."""


def same(a: Any, b: Any) -> bool:
    """Equality that keeps `True` and `1` apart, as options do."""
    return a is b or (type(a) is type(b) and bool(a == b))


def calling_source(depth: int = 2) -> Source:
    """File and line of the plugin author's code that is `depth` frames up."""
    frame = sys._getframe(depth)
    return Source(frame.f_code.co_filename, frame.f_lineno)


_SHOWN: Final = 8
"""Longer lists of values are cut when an expression is shown."""


class Expr:
    """A boolean expression over options."""

    __slots__ = ()

    def __and__(self, other: Expr) -> Expr:
        return And((self, other))

    def __or__(self, other: Expr) -> Expr:
        return Or((self, other))

    def __invert__(self) -> Expr:
        return Not(self)

    def __bool__(self) -> bool:
        raise TypeError("a rule expression has no truth value: combine with `&`, `|`, `~`, not `and`, `or`, `not`")


@dataclass(frozen=True)
class In(Expr):
    """The option has one of these values (`UNSET` and `None` may be among them)."""

    key: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        if len(self.values) == 1:
            return f"{self.key}={show(self.values[0])}"
        named = [show(v) for v in self.values[: len(self.values) if len(self.values) <= _SHOWN else 3]]
        more = len(self.values) - len(named)
        return f"{self.key} in ({', '.join(named)}{f', and {more} more' if more else ''})"


@dataclass(frozen=True)
class Between(Expr):
    """The option is an integer with `low <= value <= high`; an open end is `None`. False for null and unset."""

    key: str
    low: int | None
    high: int | None

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.key}<={self.high}"
        if self.high is None:
            return f"{self.key}>={self.low}"
        return f"{self.low}<={self.key}<={self.high}"


@dataclass(frozen=True)
class And(Expr):
    parts: tuple[Expr, ...]

    def __str__(self) -> str:
        return " and ".join(_wrap(p) for p in self.parts) or "always"


@dataclass(frozen=True)
class Or(Expr):
    parts: tuple[Expr, ...]

    def __str__(self) -> str:
        return " or ".join(_wrap(p) for p in self.parts) or "never"


@dataclass(frozen=True)
class Not(Expr):
    part: Expr

    def __str__(self) -> str:
        if isinstance(self.part, In):
            if len(self.part.values) == 1:
                return f"{self.part.key}!={show(self.part.values[0])}"
            return str(self.part).replace(" in (", " not in (", 1)
        return f"not {_wrap(self.part)}"


ALWAYS: Final[Expr] = And(())
NEVER: Final[Expr] = Or(())


def _wrap(expr: Expr) -> str:
    return f"({expr})" if isinstance(expr, (And, Or)) and len(expr.parts) > 1 else str(expr)


def show(value: Any) -> str:
    """A value as a user would type it on the command line."""
    if value is UNSET:
        return "unset"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_item, value))}]"
    return str(value)


def _item(value: Any) -> str:
    """A value within a list: text in quotes where it would be read as anything else."""
    if not isinstance(value, str) or (_PLAIN.fullmatch(value) and value.lower() not in _WORDS):
        return show(value)
    return repr(value)


def mentions(expr: Expr) -> frozenset[str]:
    """The keys that an expression reads."""
    if isinstance(expr, (In, Between)):
        return frozenset((expr.key,))
    if isinstance(expr, Not):
        return mentions(expr.part)
    if isinstance(expr, (And, Or)):
        return frozenset().union(*(mentions(p) for p in expr.parts))
    raise TypeError(f"not an expression: {expr!r}")


def holds(expr: Expr, values: Mapping[str, Any]) -> bool:
    """Whether the expression is true of these values; a key that is missing counts as `UNSET`."""
    if isinstance(expr, In):
        value = values.get(expr.key, UNSET)
        return any(same(value, v) for v in expr.values)
    if isinstance(expr, Between):
        value = values.get(expr.key, UNSET)
        if type(value) is not int:
            return False
        return (expr.low is None or expr.low <= value) and (expr.high is None or value <= expr.high)
    if isinstance(expr, Not):
        return not holds(expr.part, values)
    if isinstance(expr, And):
        return all(holds(p, values) for p in expr.parts)
    if isinstance(expr, Or):
        return any(holds(p, values) for p in expr.parts)
    raise TypeError(f"not an expression: {expr!r}")


class Key:
    """A reference to an option by its key. Comparisons build expressions, so a `Key` hashes by identity of its name."""

    key: str

    def __init__(self, key: str) -> None:
        self.key = key

    def isin(self, *values: Any) -> Expr:
        return In(self.key, tuple(values))

    def __eq__(self, value: object) -> Expr:  # type: ignore[override]
        return In(self.key, (value,))

    def __ne__(self, value: object) -> Expr:  # type: ignore[override]
        return Not(In(self.key, (value,)))

    def __hash__(self) -> int:
        return hash(self.key)

    def __le__(self, bound: int) -> Expr:
        return Between(self.key, None, bound)

    def __lt__(self, bound: int) -> Expr:
        return Between(self.key, None, bound - 1)

    def __ge__(self, bound: int) -> Expr:
        return Between(self.key, bound, None)

    def __gt__(self, bound: int) -> Expr:
        return Between(self.key, bound + 1, None)

    @property
    def on(self) -> Expr:
        return In(self.key, (True,))

    @property
    def off(self) -> Expr:
        return In(self.key, (False,))

    @property
    def unset(self) -> Expr:
        return In(self.key, (UNSET,))

    @property
    def null(self) -> Expr:
        return In(self.key, (None,))


def key(name: str) -> Key:
    """Refer to an option of any plugin by its dotted key."""
    return Key(name)


class Option(Key):
    """One typed key. Make it with `Bool`, `Enum`, `Int`, `Setting` or `Fact`, not directly.

    `kind` is bool, enum, int or setting; `values` the menu of a bool or enum, in order of display; `open` lets other
    plugins extend the menu through `Plugin(provides=...)`; `type` is the Python type (or tuple of types) of a setting.
    A `free` option moves no number of the training: a run may go on from a checkpoint with another value than before.
    """

    def __init__(
        self,
        key: str,
        kind: str,
        *,
        role: str,
        doc: str,
        values: tuple[Any, ...] = (),
        nullable: bool = False,
        minimum: float | None = None,
        maximum: float | None = None,
        unit: str | None = None,
        open: bool = False,
        type: Any = None,
        default: Any = UNSET,
        probe: str | None = None,
        learn: str | None = None,
        secret: bool = False,
        free: bool = False,
        stated_by: str | None = None,
        pivotal: bool = False,
        source: Source | None = None,
    ) -> None:
        super().__init__(key)
        self.kind, self.role, self.doc, self.values = kind, role, doc, values
        self.nullable, self.minimum, self.maximum, self.unit = nullable, minimum, maximum, unit
        self.open, self.type, self.default, self.secret = open, type, default, secret
        self.probe, self.learn, self.free, self.stated_by = probe, learn, free, stated_by
        self.pivotal = pivotal
        self.source = source or calling_source(3)

    def __repr__(self) -> str:
        return f"<{self.role} {self.key}: {self.kind}>"

    def extended(self, values: Iterable[Any]) -> Option:
        """The same option with a longer menu."""
        more = tuple(v for v in values if not any(same(v, w) for w in self.values))
        clone = Option.__new__(Option)
        clone.__dict__.update(self.__dict__, values=self.values + more)
        return clone


def Bool(key: str, *, doc: str, role: str = "choice", nullable: bool = False, free: bool = False) -> Option:
    """An option that is true or false."""
    return Option(
        key, "bool", role=role, doc=doc, values=(False, True), nullable=nullable, free=free, source=calling_source()
    )


def Enum(
    key: str, values: Iterable[str], *, doc: str, role: str = "choice", open: bool = False, nullable: bool = False,
    free: bool = False, pivotal: bool = False,
) -> Option:  # fmt: skip
    """An option with a menu of names. `open=True` lets other plugins add to the menu. `pivotal`: with another value it is
    another run altogether, so that replacing what a user chose for it is the last repair to be offered."""
    return Option(
        key, "enum", role=role, doc=doc, values=tuple(values), open=open, nullable=nullable, free=free,
        pivotal=pivotal, source=calling_source(),
    )  # fmt: skip


def Int(
    key: str,
    *,
    doc: str,
    unit: str | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    nullable: bool = False,
    role: str = "choice",
) -> Option:
    """An integer option that rules may compare with constants. `nullable` lets a user write `null`."""
    return Option(
        key, "int", role=role, doc=doc, unit=unit, minimum=minimum, maximum=maximum, nullable=nullable,
        source=calling_source(),
    )  # fmt: skip


def Setting(
    key: str,
    type: Any,
    *,
    doc: str,
    default: Any = UNSET,
    unit: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    values: Iterable[Any] = (),
    nullable: bool = False,
    secret: bool = False,
    free: bool = False,
) -> Option:
    """A key of any type (`int`, `float`, `str`, `bool`, `list`, `dict`) that the solver never searches.

    `default` (or `Default` rules) fills it after the solve; type, range and menu are checked."""
    return Option(
        key, "setting", role="setting", doc=doc, type=type, default=default, unit=unit, minimum=minimum,
        maximum=maximum, values=tuple(values), nullable=nullable, secret=secret, free=free,
        source=calling_source(),
    )  # fmt: skip


def Fact(
    key: str,
    *,
    probe: str,
    doc: str,
    learn: str | None = None,
    values: Iterable[Any] | None = (False, True),
    minimum: int | None = None,
    open: bool = False,
    stated_by: str | None = None,
) -> Option:
    """Something probed on the host before solving by `probe` ("module:function", free of torch).

    `values` is its menu; `values=None` makes it an integer. With `open=True` the probe may find other names too, which
    no rule tells apart. The probe is called with the request's values and returns a
    value, or `memcfg.PENDING` where only the network or the data can tell. Where that happens, `learn` ("module:function")
    is called before anything is built, with the plan's values; it may be slow, use the network and read the data, and
    returns the value, `memcfg.PENDING` if it cannot tell either, or raises a `MemcfgError`.

    `stated_by` is the key of an option by which a user may decide the fact. Where that is so, a conflict names the choice,
    and what the probe says without it is looked at as a repair."""
    menu = None if values is None else tuple(values)
    kind = "int" if menu is None else ("bool" if set(map(str, menu)) == {"False", "True"} else "enum")
    return Option(
        key, kind, role="fact", doc=doc, values=menu or (), minimum=minimum, probe=probe, learn=learn, open=open,
        stated_by=stated_by, source=calling_source(),
    )  # fmt: skip


PENDING: Final = _Symbol("PENDING")
"""What a fact's probe returns when it cannot tell yet: the rules that read it wait."""
