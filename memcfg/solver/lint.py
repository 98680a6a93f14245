"""Faults in a rule base that is well formed: what no request can reach, and what surprises whoever makes one choice.

Each question is put to the rules as clauses: is there a request, on any host, for which this holds? There are no users
to ask about and no defaults to guess: an option is either given some value that is read, or left out and then supported
by a default that applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Final

from memcfg.errors import ConflictError, MemcfgError
from memcfg.solver.domain import Interval, Other
from memcfg.solver.expr import NEVER, UNSET, Not, Option, mentions, same, show
from memcfg.solver.lower import NO, YES, Every, Lit, Lowering, Node
from memcfg.solver.problem import Problem
from memcfg.solver.propagate import Entangled, Propagation, Unsatisfiable
from memcfg.solver.request import Choice, Request
from memcfg.solver.resolve import contradicted, resolve
from memcfg.solver.rules import Advise, Check, Default, Fallback, Force, Ignored, Require, Rule, condition
from memcfg.solver.theory import Tag, Theory

KINDS: Final = {
    "dead-value": "a value that no request can have",
    "always-forced": "an option whose value no request can choose",
    "dead-default": "a default that never speaks",
    "dead-rule": "a rule whose condition never holds",
    "contradiction": "rules that exclude each other whenever they apply",
    "force-clash": "two rules that force different values, with a request that meets both",
    "conflict-after-one-choice": "a default that stands in the way of a single choice and does not yield",
    "unread-option": "an option that no rule and no code reads",
    "unexercised-rule": "a rule that no test holds responsible for anything",
    "broken-plugin": "a plugin that could not be used: ambiguous defaults and the like are found when rules are loaded",
}
"""What is looked for. The last three are found where plugins and tests are known: `memcfg.registry.lint`."""


@dataclass(frozen=True)
class Finding:
    """`name` identifies it: the kind and what it is about. `witness`: overrides of a request that shows it."""

    kind: str
    about: str
    text: str
    rules: tuple[str, ...] = ()
    witness: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kind} {self.about}"


def lint(theory: Theory) -> list[Finding]:
    """Everything that the rules alone show, in a fixed order."""
    world = _World(theory)
    found = [*_dead_values(world), *_dead_defaults(world), *_dead_rules(world), *_clashes(world)]
    return [*found, *conflicts_after_one_choice(theory)]


# ------------------------------------------------------------------------------------------------------------- questions


class _World:
    """All requests on all hosts: every choice is given or left out, every fact open."""

    def __init__(self, theory: Theory) -> None:
        self.theory, self.program = theory, theory.program()
        self.variables = self.program.variables
        options = theory.options
        self.choices = [key for key in self.variables.names if options[key].role == "choice"]
        self.problem = Problem(self.program, dict.fromkeys(self.choices), {}, free=frozenset(self.choices))
        self.aside = self.problem.left_out
        self._names = {var: key for key, var in self.aside.items()}

    @cached_property
    def _prepared(self) -> Propagation:
        return self.problem.prepare()

    def model(self, node: Node, without: Iterable[Rule] = ()) -> list[int] | None:
        """A request for which the node holds, options left out where possible; None if there is none."""
        state = self._prepared.copy()
        for rule in without:
            for k in self.program.places.get(Tag("rule", rule.id), ()):
                state.drop(k)
        lowering = Lowering(self.problem.full)
        clauses = lowering.clauses(node)
        state.widen(lowering.full[len(self.problem.full) :])
        for clause in (*clauses, *lowering.definitions):
            state.add(clause, frozenset())
        try:
            return state.search([*self.aside.values(), *self.program.order], self._prefer)
        except Unsatisfiable:
            return None
        except Entangled:  # not known: no finding
            return [*self.problem.full]

    def _prefer(self, var: int, dom: Any) -> Iterable[int]:
        return (YES,) if var in self._names else self.problem.preferred(var, dom)

    def literal(self, key: str, bit: int) -> Lit:
        return Lit(self.variables.index[key], bit)

    def given(self, key: str) -> Lit:
        return Lit(self.aside[key], NO)

    def left_out(self, key: str) -> list[Node]:
        return [Lit(self.aside[key], YES)] if key in self.aside else []

    def request(self, dom: list[int]) -> Request:
        """The request of a model."""
        chosen = {key: self._value(key, dom) for key, var in self.aside.items() if dom[var] == NO}
        facts = {k: self._value(k, dom) for k in self.variables.names if self.theory.options[k].role == "fact"}
        return Request({k: Choice(v, "command line") for k, v in chosen.items()}, facts)

    def _value(self, key: str, dom: list[int]) -> Any:
        var = self.variables.index[key]
        bits = dom[var] & -dom[var]
        symbol = self.variables.domains[var].symbol(bits)
        if isinstance(symbol, Interval):
            return symbol.nearest(None)
        return "something-else" if isinstance(symbol, Other) else symbol


# ----------------------------------------------------------------------------------------------------------------- values


def _dead_values(world: _World) -> Iterator[Finding]:
    for key in world.variables.names:
        option = world.theory.options[key]
        if option.role == "fact":
            continue
        domain = world.variables.domains[world.variables.index[key]]
        bits = [1 << i for i, symbol in enumerate(domain.symbols) if symbol is not UNSET]
        dead = [bit for bit in bits if not _alive(world, key, bit)]
        if len(bits) - len(dead) <= 1 < len(bits) and option.role == "choice":
            alive = [domain.describe(bit) for bit in bits if bit not in dead]
            text = f"of its values only {alive[0]} can be chosen" if alive else "none of its values can be chosen"
            yield Finding("always-forced", key, text, _rules_on(world.theory, key))
            continue
        for bit in dead:
            text = "no request can have this value" if option.role == "choice" else "no rule ever gives this value"
            named = domain.describe(bit).strip("`")
            yield Finding("dead-value", f"{key}={named}", text, _rules_on(world.theory, key))


def _alive(world: _World, key: str, bit: int) -> bool:
    node: list[Node] = [world.literal(key, bit)]
    if key in world.aside:
        node.append(world.given(key))
    return world.model(Every(tuple(node))) is not None


def _rules_on(theory: Theory, key: str) -> tuple[str, ...]:
    hard = (r for r in theory.rules.values() if isinstance(r, (Force, Fallback, Ignored, Require)))
    return tuple(r.id for r in hard if getattr(r, "key", None) == key or key in theory.antecedents[r.id])[:6]


# -------------------------------------------------------------------------------------------------------------- defaults


def _dead_defaults(world: _World) -> Iterator[Finding]:
    theory = world.theory
    for key, defaults in theory.defaults.items():
        forces = [world.program.node(guard.rule) for guard in world.program.forces.get(key, ())]
        for default in defaults:
            sooner = [theory.nodes[other] for other in theory.beaten[default.id]]
            silent = [world.variables.negate(node) for node in (*sooner, *forces)]
            if world.model(Every((theory.nodes[default.id], *silent, *world.left_out(key)))) is None:
                beaten = tuple(sorted(theory.beaten[default.id]))
                text = "never speaks: where it applies, another default or a forced value comes first"
                yield Finding("dead-default", default.id, text, (default.id, *beaten))


# ----------------------------------------------------------------------------------------------------------------- rules


def _dead_rules(world: _World) -> Iterator[Finding]:
    for rule in world.theory.rules.values():
        if not isinstance(rule, (Force, Fallback, Require, Ignored, Advise, Check)):
            continue
        if not mentions(rule.when) <= world.variables.index.keys():
            continue  # it reads a setting: only final values can tell
        when = world.variables.node(rule.when)
        speaks = Every((when, world.variables.node(Not(rule.cond)))) if isinstance(rule, Require) else when
        if world.model(speaks, without=[rule]) is None:
            yield Finding("dead-rule", rule.id, f"never speaks: `{condition(rule)}` never holds", (rule.id,))
        elif isinstance(rule, (Force, Require)) and _excludes(rule) and world.model(when) is None:
            text = f"whenever `{rule.when}` holds, it contradicts other rules: say so with `Forbid`"
            yield Finding("contradiction", rule.id, text, (rule.id,))


def _excludes(rule: Rule) -> bool:
    """Whether a rule says that something is so, and not just that something never is."""
    return not (isinstance(rule, Require) and rule.cond is NEVER)


def _clashes(world: _World) -> Iterator[Finding]:
    for guards in world.program.forces.values():
        for a, b in combinations(guards, 2):
            if a.bit == b.bit:
                continue
            dom = world.model(Every((a.when, b.when)), without=[a.rule, b.rule])
            if dom is None:
                continue
            witness = _shown_by(world.theory, world.request(dom), {a.rule.id, b.rule.id})
            if witness is not None:
                text = f"both fire here and force different values of `{a.rule.key}`"
                yield Finding("force-clash", f"{a.rule.id} {b.rule.id}", text, (a.rule.id, b.rule.id), witness)


def _shown_by(theory: Theory, request: Request, rules: set[str]) -> tuple[str, ...] | None:
    """The least of a request's choices that still makes these rules conflict; None where they do not."""
    if not _conflicting(theory, request, rules):
        return None
    for key in list(request.choices):
        fewer = Request({k: c for k, c in request.choices.items() if k != key}, request.facts)
        if _conflicting(theory, fewer, rules):
            request = fewer
    return overrides(request, theory, rules)


def _conflicting(theory: Theory, request: Request, rules: set[str]) -> bool:
    try:
        resolve(theory, request)
    except ConflictError as error:
        return any(rules <= set(conflict.rules) for conflict in error.conflicts)
    except MemcfgError:
        return False
    return False


def overrides(request: Request, theory: Theory, rules: Iterable[str]) -> tuple[str, ...]:
    """A request as one would type it, with the facts that these rules read, assumed."""
    chosen = [f"{key}={show(choice.value)}" for key, choice in request.choices.items()]
    read = frozenset[str]().union(*(theory.antecedents[rule] for rule in rules))
    return (*chosen, *(f"assume.{key}={show(value)}" for key, value in request.facts.items() if key in read))


# -------------------------------------------------------------------------------------------------------- single choices


def conflicts_after_one_choice(theory: Theory) -> Iterator[Finding]:
    """Every single choice, on a plain, a full and a single-process host: those in whose way a default stands."""
    told = set[str]()
    for facts in hosts(theory):
        plain = _blocking(theory, Request(facts=facts)) or ()
        for option in theory.options.values():
            for value in _menu(theory, option):
                request = Request({option.key: Choice(value, "command line")}, facts)
                blocking = _blocking(theory, request)
                about = f"{option.key}={show(value)}"
                if blocking and set(blocking) != set(plain) and about not in told:
                    told.add(about)
                    text = "by itself this choice conflicts with a default that does not yield"
                    witness = overrides(request, theory, blocking)
                    yield Finding("conflict-after-one-choice", about, text, blocking, witness)


def _menu(theory: Theory, option: Option) -> list[Any]:
    if option.role != "choice" or option.key not in theory.variables.index:
        return []
    symbols = theory.variables.domains[theory.variables.index[option.key]].symbols
    values = [s.nearest(None) if isinstance(s, Interval) else s for s in symbols if s is not UNSET]
    return [value for value in values if not isinstance(value, Other)]


def _blocking(theory: Theory, request: Request) -> tuple[str, ...] | None:
    """The rules of a conflict in which a default takes part, and in which nothing is merely out of place."""
    try:
        error = contradicted(theory, request)
    except MemcfgError:
        return None
    for conflict in error.conflicts if error else ():
        rules = [theory.rules[rule] for rule in conflict.rules]
        if any(isinstance(r, Default) for r in rules) and not any(isinstance(r, Ignored) for r in rules):
            return conflict.rules
    return None


def hosts(theory: Theory) -> Iterator[Mapping[str, Any]]:
    """Facts to try: the least of each menu, the most of each, and the most with the least of every number."""
    facts = [option for option in theory.options.values() if option.role == "fact"]
    least = {fact.key: _end(theory, fact, first=True) for fact in facts}
    most = {fact.key: _end(theory, fact, first=False) for fact in facts}
    seen: list[Mapping[str, Any]] = []
    for host in (least, most, {**most, **{f.key: least[f.key] for f in facts if f.kind == "int"}}):
        if not any(all(same(host[key], other[key]) for key in host) for other in seen):
            seen.append(host)
            yield host


def _end(theory: Theory, fact: Option, first: bool) -> Any:
    if fact.key not in theory.variables.index:
        return fact.values[0 if first else -1] if fact.values else int(fact.minimum or 0)
    symbols = [s for s in theory.variables.domains[theory.variables.index[fact.key]].symbols if s is not UNSET]
    symbols = [s for s in symbols if not isinstance(s, Other)]
    symbol = symbols[0 if first else -1]
    return symbol.nearest(None) if isinstance(symbol, Interval) else symbol
