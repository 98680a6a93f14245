"""A rule base, checked and lowered once; requests are solved against it.

`Theory.build` refuses what cannot be meant (see `wellformed` and `specificity`) and decides what no request changes:
domains, the order of options, which default speaks before which. `Theory.program` holds the clauses; there is one for
each set of facts that are not known yet, because the rules that read those wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from memcfg.errors import RuleError
from memcfg.solver.decision import Pending
from memcfg.solver.expr import UNSET, Option, mentions
from memcfg.solver.facts import FactChecks, fact_readers
from memcfg.solver.lower import Clause, Lit, Lowering, Node, Some, Variables
from memcfg.solver.propagate import Entangled, Propagation
from memcfg.solver.rules import (
    Check,
    Default,
    Fallback,
    Force,
    Ignored,
    RemovedKey,
    RenameKey,
    RenameValue,
    Require,
    Rule,
)
from memcfg.solver.specificity import Beats, decision_order, more_specific
from memcfg.solver.wellformed import check_rules, collect_options, collect_rules, domains, reads


class Tag(NamedTuple):
    """Where a clause comes from. `kind`: you (a choice), fact, decided (an earlier resolution), free (an option that a
    repair must decide), rule, default (a rule's proposals), unset (no rule proposes anything). `name`: the rule's id for
    rule and default, else the option."""

    kind: str
    name: str


Tagged = tuple[Clause, frozenset[Tag]]


class Proposal(NamedTuple):
    """A default of an option in the solver: when, and the bits of its values in order."""

    rule: Default
    when: Node
    bits: tuple[int, ...]


class Guarded(NamedTuple):
    """A force or fallback of an option in the solver."""

    rule: Force | Fallback
    when: Node
    bit: int


class Theory:
    """A checked rule base. Make it with `Theory.build`."""

    options: Mapping[str, Option]
    rules: Mapping[str, Rule]

    def __init__(self, options: Mapping[str, Option], rules: Mapping[str, Rule]) -> None:
        self.options, self.rules = MappingProxyType(options), MappingProxyType(rules)
        self.variables = Variables(domains(options, rules))
        self.order = decision_order(rules.values(), self.variables.names)
        self.nodes: dict[str, Node] = {
            r.id: self.variables.node(r.when)
            for r in rules.values()
            if isinstance(r, (Default, Force, Fallback, Ignored, Require))
        }
        self.antecedents = {r.id: tuple(sorted(reads(r))) for r in rules.values()}
        self.facts = frozenset(key for key, option in options.items() if option.role == "fact")
        self.secrets = frozenset(key for key, option in options.items() if option.secret)
        self.renamed_keys = {r.old: r for r in rules.values() if isinstance(r, RenameKey)}
        self.renamed_values: dict[str, list[RenameValue]] = _by_key(rules, RenameValue)
        self.removed = {r.key: r for r in rules.values() if isinstance(r, RemovedKey)}
        self.defaults = _by_key(rules, Default)
        self.beaten: dict[str, frozenset[str]] = {}
        for by in self.defaults.values():
            self.beaten.update(self._specificity(by))
        self._programs: dict[frozenset[str], Program] = {}

    @classmethod
    def build(cls, options: Iterable[Option], rules: Iterable[Rule]) -> Theory:
        """Check and lower a rule base. Raises `RuleError` with the author's file and line."""
        found, listed = collect_options(options), collect_rules(rules)
        check_rules(found, listed)
        return cls(found, listed)

    def _specificity(self, defaults: list[Default]) -> Beats:
        try:
            return more_specific(defaults, self.nodes, self.variables)
        except Entangled:
            text = f"the conditions of the defaults of `{defaults[0].key}` are too entangled to compare"
            raise RuleError(text, [d.id for d in defaults], defaults[0].source) from None

    def program(self, pending: frozenset[str] = frozenset()) -> Program:
        """The clauses while the facts in `pending` are unknown."""
        if pending not in self._programs:
            self._programs[pending] = Program(self, pending)
        return self._programs[pending]


def _by_key(rules: Mapping[str, Rule], kind: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for rule in rules.values():
        if isinstance(rule, kind):
            found.setdefault(rule.key, []).append(rule)
    return found


class Program:
    """What a theory comes to in clauses: `hard` always, `support[var]` while nobody chose that option.

    Support clauses say that an option takes a value which its most specific applicable default proposes, unless a force
    fires, and is unset where no default applies."""

    def __init__(self, theory: Theory, pending: frozenset[str]) -> None:
        self.theory, self.variables = theory, theory.variables
        self.rules = {i: r for i, r in theory.rules.items() if pending.isdisjoint(theory.antecedents[i])}
        waiting = {fact: [i for i in theory.rules if fact in theory.antecedents[i]] for fact in sorted(pending)}
        self.waiting = tuple(Pending(fact, tuple(ids)) for fact, ids in waiting.items())
        self.order = [self.variables.index[key] for key in theory.order]
        self.defaults = {key: self._proposals(by) for key, by in _by_key(self.rules, Default).items()}
        self.forces = self._guarded(Force)
        self.fallbacks = self._guarded(Fallback)
        self.fact_readers = tuple(fact_readers(theory.facts, self.rules.values(), self.variables))
        self.fact_checks = FactChecks(theory.facts, self.rules.values())
        self.checks = tuple((r, self._check_node(r)) for r in self.rules.values() if isinstance(r, Check))
        self.ignored: dict[str, list[Ignored]] = _by_key(self.rules, Ignored)
        lowering = Lowering(self.variables.full)
        self.hard: list[Tagged] = [(c, frozenset((tag,))) for tag, c in self._hard(lowering)]
        self.support: dict[int, list[Tagged]] = {
            var: [(c, frozenset((tag,))) for tag, c in self._support(var, lowering)] for var in sorted(self.order)
        }
        self.hard += [(c, frozenset()) for c in lowering.definitions]
        self.full = lowering.full
        self._prepare()

    def _prepare(self) -> None:
        """Store the clauses once; each question works on a copy."""
        self.prepared = Propagation(self.full)
        self.places: dict[Tag, list[int]] = {}
        for tagged in self.hard:
            self._place(tagged)
        self.support_places = {var: [self._place(t) for t in by] for var, by in self.support.items()}

    def _place(self, tagged: Tagged) -> int:
        k = self.prepared.add(*tagged)
        for tag in tagged[1]:
            self.places.setdefault(tag, []).append(k)
        return k

    def tagged(self, tags: Collection[Tag]) -> list[Tagged]:
        """The clauses that have no other tags than these."""
        found = list(self._by_tag.get(None, ()))
        for tag in sorted(tags):
            found += [t for t in self._by_tag.get(tag, ()) if t[1] <= set(tags) and t not in found]
        return found

    @cached_property
    def mentioning(self) -> dict[int, list[Tagged]]:
        """The clauses of hard rules by the variables in them."""
        found: dict[int, list[Tagged]] = {}
        for tagged in self.hard:
            for var, _ in tagged[0]:
                found.setdefault(var, []).append(tagged)
        return found

    @cached_property
    def supporting(self) -> dict[int, list[tuple[int, Tagged]]]:
        """The support clauses by the variables in them, each with the one that it supports."""
        found: dict[int, list[tuple[int, Tagged]]] = {}
        for supported, by in self.support.items():
            for tagged in by:
                for var, _ in tagged[0]:
                    found.setdefault(var, []).append((supported, tagged))
        return found

    @cached_property
    def _by_tag(self) -> dict[Tag | None, list[Tagged]]:
        by_tag: dict[Tag | None, list[Tagged]] = {}
        for tagged in (*self.hard, *(t for by in self.support.values() for t in by)):
            for tag in tagged[1] or (None,):
                by_tag.setdefault(tag, []).append(tagged)
        return by_tag

    def _check_node(self, rule: Check) -> Node | None:
        """When a check applies; None where only final values can tell."""
        inside = mentions(rule.when) <= self.variables.index.keys()
        return self.variables.node(rule.when) if inside else None

    def node(self, rule: Rule) -> Node:
        return self.theory.nodes[rule.id]

    def _proposals(self, defaults: list[Default]) -> tuple[Proposal, ...]:
        """Those that speak first come first."""
        beaten = self.theory.beaten
        ordered: list[Default] = []
        left = {d.id: d for d in defaults}
        while left:
            first = [d for d in left.values() if not beaten[d.id] & left.keys()]
            ordered += first
            for default in first:
                del left[default.id]
        return tuple(Proposal(d, self.node(d), self._bits(d)) for d in ordered)

    def _bits(self, default: Default) -> tuple[int, ...]:
        if default.key not in self.variables.index:  # a setting
            return ()
        domain = self.variables.domains[self.variables.index[default.key]]
        return tuple(domain.bit(v) for v in default.values)

    def _guarded(self, kind: type[Force] | type[Fallback]) -> dict[str, tuple[Guarded, ...]]:
        found: dict[str, tuple[Guarded, ...]] = {}
        for key, by in _by_key(self.rules, kind).items():
            domain = self.variables.domains[self.variables.index[key]]
            found[key] = tuple(
                Guarded(r, self.node(r), domain.bit(r.value if isinstance(r, Force) else r.to)) for r in by
            )
        return found

    def _hard(self, lowering: Lowering) -> Iterable[tuple[Tag, Clause]]:
        negate, literal = self.variables.negate, self.variables.literal
        for rule in self.rules.values():
            if isinstance(rule, Require):
                then = self.variables.node(rule.cond)
            elif isinstance(rule, Force):
                then = literal(rule.key, (rule.value,))
            elif isinstance(rule, Fallback):
                then = negate(literal(rule.key, (rule.value,)))
            else:
                continue
            for clause in lowering.any_of(negate(self.node(rule)), then):
                yield Tag("rule", rule.id), clause

    def _support(self, var: int, lowering: Lowering) -> Iterable[tuple[Tag, Clause]]:
        key = self.variables.names[var]
        if self.theory.options[key].role == "fact":
            return
        forced = [g.when for g in self.forces.get(key, ())]
        proposals = self.defaults.get(key, ())
        for rule, when, bits in proposals:
            sooner = [p.when for p in proposals if p.rule.id in self.theory.beaten[rule.id]]
            first = Lit(var, bits[0])  # all of a menu would leave no clause, and nothing to pin the option by
            for clause in lowering.any_of(self.variables.negate(when), *sooner, *forced, first):
                yield Tag("default", rule.id), tuple((v, _union(bits) if v == var else mask) for v, mask in clause)
        unset = self.variables.literal(key, (UNSET,))
        for clause in lowering.clauses(Some((*(p.when for p in proposals), *forced, unset))):
            yield Tag("unset", key), clause


def _union(bits: Iterable[int]) -> int:
    union = 0
    for bit in bits:
        union |= bit
    return union
