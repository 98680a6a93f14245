"""A brute-force reading of the specification in `memcfg.solver.resolve`, and random small rule bases to hold it against.

Nothing here shares code with the solver beyond the rules themselves and `holds`: every assignment is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from hypothesis import strategies as st

from memcfg import (
    UNSET,
    Bool,
    ConflictError,
    Default,
    Enum,
    Fact,
    Fallback,
    Forbid,
    Force,
    Ignored,
    Int,
    Option,
    RequestError,
    Require,
    Rule,
)
from memcfg.solver import Choice, Request, Resolution, Theory, resolve
from memcfg.solver.expr import ALWAYS, Between, Expr, In, holds, mentions, same

NUMBERS = tuple(range(6))


@dataclass(frozen=True)
class Base:
    """A rule base with a request."""

    options: tuple[Option, ...]
    rules: tuple[Rule, ...]
    choices: Mapping[str, Any]
    facts: Mapping[str, Any]

    @property
    def request(self) -> Request:
        return Request({k: Choice(v, "command line") for k, v in self.choices.items()}, self.facts)


class Oracle:
    """What the specification says, by looking at every assignment."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.of = {kind: [r for r in base.rules if isinstance(r, kind)] for kind in (Default, Force, Fallback, Require)}
        always = {d.key for d in self.of[Default] if d.when == ALWAYS}
        self.domains: dict[str, list[Any]] = {}
        for option in base.options:
            symbols: list[Any] = list(NUMBERS) if option.kind == "int" else list(option.values)
            if option.nullable:
                symbols.append(None)
            if option.role != "fact" and option.key not in always:
                symbols.append(UNSET)
            self.domains[option.key] = symbols

    def assignments(self, keys: list[str]) -> list[dict[str, Any]]:
        return [dict(zip(keys, values, strict=True)) for values in product(*(self.domains[k] for k in keys))]

    def implies(self, a: Expr, b: Expr) -> bool:
        return all(holds(b, x) for x in self.assignments(sorted(mentions(a) | mentions(b))) if holds(a, x))

    def beats(self, a: Default, b: Default) -> bool:
        if b.id in a.supersedes or a.id in b.supersedes:
            return b.id in a.supersedes
        return self.implies(a.when, b.when) and not self.implies(b.when, a.when)

    def ambiguous(self) -> bool:
        for i, a in enumerate(self.of[Default]):
            for b in self.of[Default][i + 1 :]:
                if a.key == b.key and not self.beats(a, b) and not self.beats(b, a) and a.values != b.values:
                    both = self.assignments(sorted(mentions(a.when) | mentions(b.when)))
                    if any(holds(a.when, x) and holds(b.when, x) for x in both):
                        return True
        return False

    def order(self) -> list[str]:
        needs: dict[str, set[str]] = {o.key: set() for o in self.base.options}
        for kind in (Default, Force, Fallback):
            for rule in self.of[kind]:
                needs[rule.key] |= mentions(rule.when)
        done: list[str] = []
        while len(done) < len(needs):
            done += sorted(k for k in needs if k not in done and needs[k] <= set(done))
        return done

    def speaking(self, key: str, x: Mapping[str, Any]) -> tuple[Any, ...]:
        """The proposals for an option that nobody chose and nothing forces."""
        apply = [d for d in self.of[Default] if d.key == key and holds(d.when, x)]
        first = [d for d in apply if not any(self.beats(o, d) for o in apply)]
        return first[0].values if first else (UNSET,)

    def hard(self, x: Mapping[str, Any]) -> bool:
        return (
            all(same(x[k], v) for k, v in self.base.facts.items())
            and all(holds(r.cond, x) for r in self.of[Require] if holds(r.when, x))
            and all(same(x[r.key], r.value) for r in self.of[Force] if holds(r.when, x))
            and not any(same(x[r.key], r.value) for r in self.of[Fallback] if holds(r.when, x))
        )

    def loyal(self, key: str, value: Any, x: Mapping[str, Any]) -> bool:
        """Whether the assignment honours a choice, or a rule answers it otherwise."""
        falls = [r for r in self.of[Fallback] if r.key == key and same(r.value, value) and holds(r.when, x)]
        if not all(same(x[key], r.to) for r in falls):
            return False
        forces = [r for r in self.of[Force] if r.key == key and r.on_user == "override" and holds(r.when, x)]
        return same(x[key], value) or bool(falls) or any(not same(r.value, value) for r in forces)

    def supported(self, key: str, x: Mapping[str, Any]) -> bool:
        if any(r.key == key and holds(r.when, x) for r in self.of[Force]):
            return True
        return any(same(x[key], v) for v in self.speaking(key, x))

    def answer(self) -> dict[str, Any] | None:
        """The first assignment that the specification admits, in its order; None where there is none."""
        order, choices = self.order(), self.base.choices
        open_keys = [o.key for o in self.base.options if o.role != "fact" and o.key not in choices]
        best: tuple[list[int], dict[str, Any]] | None = None
        for x in self.assignments(order):
            if not self.hard(x) or not all(self.loyal(k, v, x) for k, v in choices.items()):
                continue
            if not all(self.supported(k, x) for k in open_keys):
                continue
            rank = [self.rank(k, x) if k in open_keys else 0 for k in order]
            if best is None or rank < best[0]:
                best = rank, x
        return None if best is None else best[1]

    def rank(self, key: str, x: Mapping[str, Any]) -> int:
        values = self.speaking(key, x)
        return next((i for i, v in enumerate(values) if same(v, x[key])), 0)


# ------------------------------------------------------------------------------------------------- random rule bases


def _one(draw: Any, of: Sequence[Any]) -> Any:
    """One of these: by number, because a strategy that is made anew for each draw costs more than the solver does."""
    return of[draw(st.integers(0, len(of) - 1))]


def _some(draw: Any, of: Sequence[Any], most: int) -> tuple[Any, ...]:
    """At least one of these and at most `most`, each once."""
    drawn = [_one(draw, of) for _ in range(draw(st.integers(1, most)))]
    return tuple({repr(value): value for value in drawn}.values())


def _atom(draw: Any, options: list[Option]) -> Expr:
    option = _one(draw, options)
    if option.kind == "int":
        if draw(st.booleans()):
            return Between(option.key, _one(draw, (None, 1, 3)), _one(draw, (None, 3, 4)))
        return In(option.key, (_one(draw, NUMBERS),))
    return In(option.key, _some(draw, [*option.values, *([] if option.role == "fact" else [UNSET])], 2))


def _expr(draw: Any, options: list[Option]) -> Expr:
    if not options:
        return ALWAYS
    shape = draw(st.integers(0, 5))
    expr = _atom(draw, options)
    if shape == 0:
        return ~expr
    if shape in (1, 2):
        return expr & _atom(draw, options)
    if shape == 3:
        return expr | _atom(draw, options)
    return (expr & ~_atom(draw, options)) | _atom(draw, options) if shape == 4 else expr


def _option(draw: Any, at: int) -> Option:
    name, shape = f"o.x{at}", draw(st.integers(0, 7))
    if shape == 0:
        return Fact(name, probe="m:f", doc="a fact", values=("a", "b"))
    if shape == 1:
        return Int(name, doc="a number", minimum=0, maximum=5)
    role = "derived" if shape == 2 else "choice"
    if shape in (3, 4):
        return Bool(name, doc="a switch", role=role)
    return Enum(name, ("a", "b", "c")[: draw(st.integers(2, 3))], doc="a menu", role=role)


def _value(draw: Any, option: Option) -> Any:
    return _one(draw, NUMBERS if option.kind == "int" else option.values)


def _rule(draw: Any, at: int, options: list[Option], ignoring: bool, proposals: int) -> Rule | None:
    name: dict[str, Any] = {"id": f"p.r{at:02}", "because": f"reason {at}"}
    shape = draw(st.integers(0, 11 if ignoring else 10))
    target_at = draw(st.integers(0, len(options) - 1))
    target, before = options[target_at], options[:target_at]
    if shape in (9, 10):
        return Require(_expr(draw, options), when=_expr(draw, options), **name)
    if shape == 8:
        return Forbid(_expr(draw, options), **name)
    if target.role == "fact":
        return None
    when = _expr(draw, before) if draw(st.booleans()) else ALWAYS
    if shape == 11:
        return Ignored(target, when=_expr(draw, options), **name) if target.role == "choice" else None
    if shape == 7:
        to = _value(draw, target)
        return Fallback(target, _value(draw, target), to=to, when=_expr(draw, before), **name)
    if shape in (5, 6):
        on_user = _one(draw, ("conflict", "override"))
        return Force(target, _value(draw, target), when=_expr(draw, before), on_user=on_user, **name)
    values = _some(draw, NUMBERS if target.kind == "int" else target.values, proposals)
    return Default(target, *values, when=when, **name)


@st.composite
def bases(draw: Any, ignoring: bool = False, most: int = 4, proposals: int = 3) -> Base:
    """A rule base of few options, with a request. `proposals`: how many values a default has at most."""
    options = [_option(draw, at) for at in range(draw(st.integers(2, most)))]
    rules = [_rule(draw, at, options, ignoring, proposals) for at in range(draw(st.integers(2, 12)))]
    choices = {o.key: _value(draw, o) for o in options if o.role == "choice" and draw(st.booleans())}
    facts = {o.key: _value(draw, o) for o in options if o.role == "fact"}
    return Base(tuple(options), tuple(r for r in rules if r is not None), choices, facts)


# ------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def oracle() -> type[Oracle]:
    return Oracle


@pytest.fixture(scope="session")
def random_bases() -> Callable[..., st.SearchStrategy[Base]]:
    return bases


@pytest.fixture(scope="session")
def outcome() -> Callable[[Theory, Request], Resolution | ConflictError | RequestError]:
    """What a request comes to, errors included."""

    def look(theory: Theory, request: Request) -> Resolution | ConflictError | RequestError:
        try:
            return resolve(theory, request)
        except (ConflictError, RequestError) as error:
            return error

    return look


@pytest.fixture(scope="session")
def ask() -> Callable[..., Request]:
    """A request from `key=value` pairs given as a mapping."""

    def make(choices: Mapping[str, Any] | None = None, facts: Mapping[str, Any] | None = None, **more: Any) -> Request:
        return Request({k: Choice(v, "command line") for k, v in (choices or {}).items()}, facts or {}, **more)

    return make
