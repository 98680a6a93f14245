"""The kinds of rule. Plain frozen data: what they mean is in `memcfg.solver.resolve`.

Each rule has a stable id `<plugin>.<topic>.<name>` and a mandatory `because`: one lower-case clause that completes
"<option> is <value> because ...". `ref` may name a paper, a document or a public issue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from memcfg.errors import Source
from memcfg.solver.expr import ALWAYS, NEVER, Expr, Key, Not, calling_source

Target = Key | str


def _key(target: Target) -> str:
    return target if isinstance(target, str) else target.key


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What every rule carries. `source` is where the author wrote it, for error messages."""

    id: str
    because: str
    ref: str | None = None
    source: Source | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, init=False)
class Default(Rule):
    """Propose `values[0]` for an option (or setting) that the user left unset; yield to the next if it is impossible.

    Of two applicable defaults the one whose `when` implies the other's wins; `supersedes` settles a tie by id."""

    key: str
    values: tuple[Any, ...]
    when: Expr
    supersedes: tuple[str, ...]

    def __init__(
        self, target: Target, *values: Any, id: str, because: str, when: Expr = ALWAYS,
        supersedes: tuple[str, ...] | list[str] = (), ref: str | None = None,
    ) -> None:  # fmt: skip
        _fill(self, id=id, because=because, ref=ref, key=_key(target), values=values, when=when,
              supersedes=tuple(supersedes))  # fmt: skip


@dataclass(frozen=True, init=False)
class Force(Rule):
    """When `when` holds, the option must be `value`. Against a user's other choice: a conflict, or with
    `on_user="override"` the rule wins and a warning says so."""

    key: str
    value: Any
    when: Expr
    on_user: Literal["conflict", "override"]

    def __init__(
        self, target: Target, value: Any, *, id: str, because: str, when: Expr = ALWAYS,
        on_user: Literal["conflict", "override"] = "conflict", ref: str | None = None,
    ) -> None:  # fmt: skip
        _fill(self, id=id, because=because, ref=ref, key=_key(target), value=value, when=when, on_user=on_user)


@dataclass(frozen=True, init=False)
class Require(Rule):
    """Hard constraint: `cond` holds whenever `when` does. `suggest` are overrides to try first in a repair."""

    cond: Expr
    when: Expr
    suggest: tuple[str, ...]

    def __init__(
        self, cond: Expr, *, id: str, because: str, when: Expr = ALWAYS, suggest: tuple[str, ...] | list[str] = (),
        ref: str | None = None,
    ) -> None:  # fmt: skip
        _fill(self, id=id, because=because, ref=ref, cond=cond, when=when, suggest=tuple(suggest))


def Forbid(
    cond: Expr, *, id: str, because: str, suggest: tuple[str, ...] | list[str] = (), ref: str | None = None
) -> Require:
    """Hard constraint: `cond` never holds."""
    rule = Require(NEVER, id=id, because=because, when=cond, suggest=suggest, ref=ref)
    object.__setattr__(rule, "source", calling_source())
    return rule


@dataclass(frozen=True, init=False)
class Fallback(Rule):
    """When `when` holds, a request for `value` is answered by `to`, with a warning."""

    key: str
    value: Any
    to: Any
    when: Expr

    def __init__(
        self, target: Target, value: Any, *, to: Any, id: str, because: str, when: Expr = ALWAYS, ref: str | None = None
    ) -> None:
        _fill(self, id=id, because=because, ref=ref, key=_key(target), value=value, to=to, when=when)


@dataclass(frozen=True, init=False)
class RenameKey(Rule):
    """The key `old` is now called `new`. Lexical, before any logic; leaves a deprecation note."""

    old: str
    new: str

    def __init__(self, old: str, new: Target, *, id: str, because: str, ref: str | None = None) -> None:
        _fill(self, id=id, because=because, ref=ref, old=old, new=_key(new))


@dataclass(frozen=True, init=False)
class RenameValue(Rule):
    """The value `old` of `key` is now called `new`. Lexical, before any logic; leaves a deprecation note."""

    key: str
    old: Any
    new: Any

    def __init__(self, target: Target, old: Any, new: Any, *, id: str, because: str, ref: str | None = None) -> None:
        _fill(self, id=id, because=because, ref=ref, key=_key(target), old=old, new=new)


@dataclass(frozen=True, init=False)
class RemovedKey(Rule):
    """The key no longer exists: an error that gives `advice`."""

    key: str
    advice: str

    def __init__(self, key: str, *, advice: str, id: str, because: str, ref: str | None = None) -> None:
        _fill(self, id=id, because=because, ref=ref, key=key, advice=advice)


@dataclass(frozen=True, init=False)
class Ignored(Rule):
    """Nothing reads this option when `when` holds: a user who sets it gets an error, never silence.

    `except_values` are harmless to state (they say what holds anyway)."""

    key: str
    when: Expr
    except_values: tuple[Any, ...]

    def __init__(
        self, target: Target, *, when: Expr, id: str, because: str, except_values: tuple[Any, ...] = (),
        ref: str | None = None,
    ) -> None:  # fmt: skip
        _fill(self, id=id, because=because, ref=ref, key=_key(target), when=when, except_values=tuple(except_values))


def only_when(condition: Expr, *options: Key, because: str, plugin: str | None = None) -> list[Ignored]:
    """One `Ignored` for each option: outside `condition` nothing reads them, so setting one there is an error.

    The ids are `<key>.outside`, preceded by `plugin` where the keys do not begin with the plugin's name."""
    rules = []
    for option in options:
        name = f"{option.key}.outside" if plugin is None else f"{plugin}.{option.key}.outside"
        rule = Ignored(option, when=Not(condition), id=name, because=because)
        object.__setattr__(rule, "source", calling_source())
        rules.append(rule)
    return rules


@dataclass(frozen=True, init=False)
class Advise(Rule):
    """A note that appears when `when` holds. `text` may name options as `{packing.strategy}`."""

    text: str
    when: Expr
    level: str

    def __init__(
        self, text: str, *, when: Expr, id: str, because: str = "", level: str = "note", ref: str | None = None
    ) -> None:
        _fill(self, id=id, because=because or text, ref=ref, text=text, when=when, level=level)


@dataclass(frozen=True, init=False)
class Check(Rule):
    """Arithmetic on final values, settings included: `test(values) -> None | str` returns what is wrong, or None.

    `reads` are the keys handed to `test` (as a mapping); the check runs when all of them are set and `when` holds. `suggest`
    names overrides to offer first: of text, lists and fractions nothing else can be offered."""

    reads: tuple[str, ...]
    test: Callable[[Mapping[str, Any]], str | None]
    when: Expr
    suggest: tuple[str, ...]

    def __init__(
        self, reads: tuple[Target, ...] | list[Target], test: Callable[[Mapping[str, Any]], str | None], *, id: str,
        because: str, when: Expr = ALWAYS, suggest: tuple[str, ...] | list[str] = (), ref: str | None = None,
    ) -> None:  # fmt: skip
        _fill(
            self, id=id, because=because, ref=ref, reads=tuple(_key(r) for r in reads), test=test, when=when,
            suggest=tuple(suggest),
        )  # fmt: skip


def _fill(rule: Rule, **fields: Any) -> None:
    """Set the fields of a frozen rule, with the author's line (two frames up: the rule's call)."""
    for name, value in fields.items():
        object.__setattr__(rule, name, value)
    object.__setattr__(rule, "source", calling_source(3))


def condition(rule: Rule) -> Expr:
    """When the rule speaks, as one expression: what the conformance tables and `lint` look at."""
    if isinstance(rule, Require) and rule.cond is not NEVER:
        return rule.when & Not(rule.cond)
    return getattr(rule, "when", ALWAYS)
