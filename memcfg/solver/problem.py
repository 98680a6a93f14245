"""One question to a theory: these choices, these facts, perhaps with something held or let go.

The plain question is what a request resolves to. Explanations ask variations of it: options set free (neither chosen
nor defaulted), defaults pinned to what an answer gave them, overrides and fallbacks switched off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from memcfg.solver.domain import Interval, Other
from memcfg.solver.expr import UNSET, Option, same
from memcfg.solver.lower import NO, YES, Clause, Lit, Lowering, truth
from memcfg.solver.propagate import Budget, Propagation, Unsatisfiable
from memcfg.solver.rules import Fallback, Ignored
from memcfg.solver.theory import Guarded, Program, Proposal, Tag, Tagged
from memcfg.solver.values import accept

_UNTAGGED: Final[frozenset[Tag]] = frozenset()


@dataclass(frozen=True)
class Problem:
    """The question: `choices` and `facts` by option. The other fields vary it."""

    program: Program
    choices: Mapping[str, Any]
    facts: Mapping[str, Any]
    decided: Mapping[str, Any] = field(default_factory=dict)
    """Values that stand from an earlier resolution."""
    stated: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    """Facts that a choice decides: its key, and what the fact is without it."""
    free: frozenset[str] = frozenset()
    """Options whose choice and defaults are dropped."""
    pins: Mapping[int, int] = field(default_factory=dict)
    """Variable -> the bit that its default must give."""
    muted: frozenset[str] = frozenset()
    """Rules that may not answer a choice with another value."""
    held: frozenset[str] = frozenset()
    """Options that no repair may change."""
    heeds_ignored: bool = False
    """Whether a choice that nothing reads is a contradiction of its own."""
    budget: Budget = field(default_factory=Budget, compare=False)
    """Shared by all variations of a question."""

    @cached_property
    def _lowering(self) -> Lowering:
        return Lowering(self.program.full)

    @cached_property
    def left_out(self) -> dict[str, int]:
        """For each free option, a variable that says whether the user leaves it out."""
        keys = sorted(self.free & self.program.variables.index.keys())
        return {key: self._lowering.variable() for key in keys}

    @cached_property
    def asserted(self) -> list[Tagged]:
        """What this question adds to the program: facts, choices, what nothing reads."""
        index = self.program.variables.index
        tagged = [self._unit("fact", key, value) for key, value in self.facts.items() if key in index]
        tagged += [self._unit("decided", key, value) for key, value in self.decided.items() if self._stands(key)]
        for key in self.choices:
            if key not in self.free:
                if key in index:
                    tagged += self.choice(key, self._lowering)
                if self.heeds_ignored:
                    tagged += self._unread(key, self._lowering)
        for key in self.left_out:
            tags = frozenset((Tag("free", key),))
            tagged += [(clause, tags) for clause in self._decidable(key, self._lowering)]
        return [*tagged, *((clause, _UNTAGGED) for clause in self._lowering.definitions)]

    @cached_property
    def full(self) -> list[int]:
        """Domains, with room for the auxiliary variables that lowering this question takes."""
        assert self.asserted is not None
        return self._lowering.full

    @cached_property
    def clauses(self) -> list[Tagged]:
        """Every clause of the question, in canonical order: what explanations work on."""
        support = (self._pinned(var, tagged) for var, tagged in self.program.support.items() if self.supports(var))
        return [*self.asserted, *(t for by in support for t in by), *self.program.hard]

    def without(self, keys: Collection[str]) -> dict[str, Any]:
        """The facts as they are where nobody chooses these options."""
        return {**self.facts, **{fact: value for fact, (key, value) in self.stated.items() if key in keys}}

    def supports(self, var: int) -> bool:
        """Whether only defaults and forces give this option its value."""
        key = self.program.variables.names[var]
        return key not in self.choices and key not in self.free and key not in self.decided

    def _pinned(self, var: int, tagged: list[Tagged]) -> list[Tagged]:
        """Support clauses that accept one value only, where the variable is pinned."""
        bit = self.pins.get(var)
        if bit is None:
            return tagged
        return [(tuple((v, bit if v == var else mask) for v, mask in clause), tags) for clause, tags in tagged]

    def prepare(self, *, defaults: bool = True, spent: Collection[Tag] = ()) -> Propagation:
        """The clauses, ready to search. `defaults`: whether support counts. `spent`: tags to leave out."""
        state = self.program.prepared.copy()
        state.widen(self.full[len(self.program.full) :])
        for var, places in self.program.support_places.items():
            if not defaults or not self.supports(var):
                for k in places:
                    state.drop(k)
            elif var in self.pins:
                for k, (clause, _) in zip(places, self._pinned(var, self.program.support[var]), strict=True):
                    state.swap(k, clause)
        for tag in spent:
            for k in self.program.places.get(tag, ()):
                state.drop(k)
        for clause, tags in self.asserted:
            if tags.isdisjoint(spent):
                state.add(clause, tags)
        return state

    def _unit(self, kind: str, key: str, value: Any) -> Tagged:
        literal = self.program.variables.literal(key, (value,))
        return ((literal.var, literal.mask),), frozenset((Tag(kind, key),))

    def _stands(self, key: str) -> bool:
        """Whether an earlier decision about this option counts."""
        return key in self.program.variables.index and key not in self.choices and key not in self.free

    def guards(self, key: str) -> list[Guarded]:
        """Rules that may answer this choice with another value."""
        value = self.choices[key]
        found = [g for g in self.program.fallbacks.get(key, ()) if same(g.rule.value, value)]
        for guard in self.program.forces.get(key, ()):
            if getattr(guard.rule, "on_user", None) == "override" and not same(guard.rule.value, value):
                found.append(guard)
        return [g for g in found if g.rule.id not in self.muted]

    def choice(self, key: str, lowering: Lowering) -> list[Tagged]:
        """The option is as chosen, or a rule fires that may override the choice."""
        guards, chosen = self.guards(key), self.program.variables.literal(key, (self.choices[key],))
        tag = Tag("you", key)
        tagged: list[Tagged] = [
            (clause, frozenset((tag,))) for clause in lowering.any_of(chosen, *(g.when for g in guards))
        ]
        for guard in guards:
            if isinstance(guard.rule, Fallback):
                tags = frozenset((tag, Tag("rule", guard.rule.id)))
                negated = self.program.variables.negate(guard.when)
                tagged += [(c, tags) for c in lowering.any_of(negated, Lit(chosen.var, guard.bit))]
        return tagged

    def ignored(self, key: str) -> list[Ignored]:
        """Rules that may say that nothing reads this choice."""
        value = self.choices[key]
        rules = self.program.ignored.get(key, ())
        return [r for r in rules if not any(same(value, v) for v in r.except_values)]

    def _unread(self, key: str, lowering: Lowering) -> Iterable[Tagged]:
        for rule in self.ignored(key):
            tags = frozenset((Tag("you", key), Tag("rule", rule.id)))
            for clause in lowering.clauses(self.program.variables.negate(self.program.node(rule))):
                yield clause, tags

    def _decidable(self, key: str, lowering: Lowering) -> Iterable[Clause]:
        """What a free option may come to: left out, whatever it is then; or given, a value that is read."""
        variables, program, var = self.program.variables, self.program, self.program.variables.index[key]
        given, left_out = Lit(self.left_out[key], NO), Lit(self.left_out[key], YES)
        if key in self.choices:
            for clause, _ in program.support[var]:
                yield (*clause, given)
        else:
            yield (given,)
        yield from lowering.any_of(left_out, variables.negate(variables.literal(key, (UNSET,))))
        for rule in program.ignored.get(key, ()):
            harmless = variables.literal(key, rule.except_values)
            yield from lowering.any_of(left_out, variables.negate(program.node(rule)), harmless)

    def solve(self) -> Answer:
        """The first model. Raises `Unsatisfiable` with the tags of a contradiction, or `Entangled`."""
        return Answer(self, self._search(self.prepare()))

    def core(
        self, *, defaults: bool = True, spent: Collection[Tag] = (), besides: Iterable[Tagged] = ()
    ) -> frozenset[Tag] | None:  # fmt: skip
        """Tags of a contradiction, or None where there is a model. `besides`: more clauses."""
        state = self.prepare(defaults=defaults, spent=spent)
        for clause, tags in besides:
            state.add(clause, tags)
        try:
            self._search(state)
        except Unsatisfiable as error:
            return error.tags  # type: ignore[return-value]
        return None

    def _search(self, state: Propagation) -> list[int]:
        return state.search([*self.program.order, *self.left_out.values()], self.preferred, self.budget)

    def preferred(self, var: int, dom: Sequence[int]) -> Iterable[int]:
        """The proposals of the default that speaks; for a free option then its menu, rather given than left out."""
        if var >= len(self.program.variables.names):
            return (NO,)
        key = self.program.variables.names[var]
        speaks = (p.bits for p in self.program.defaults.get(key, ()) if truth(p.when, dom))
        proposed = next(speaks, ())
        if key not in self.free:
            return proposed
        domain = self.program.variables.domains[var]
        menu = sorted((1 << i for i in range(len(domain.symbols))), key=lambda b: b == domain.bit(UNSET))
        return (*proposed, *menu)


class Answer:
    """A model: for every option in the solver, one symbol."""

    def __init__(self, problem: Problem, dom: Sequence[int]) -> None:
        self.problem, self.dom = problem, dom
        self._spoken: dict[str, Proposal | None] = {}

    def value(self, key: str) -> Any:
        """The concrete value: the user's or the host's own number where it lies in the answer's interval."""
        var = self.problem.program.variables.index[key]
        domain, bit = self.problem.program.variables.domains[var], self.dom[var]
        for given in (self.problem.choices, self.problem.facts, self.problem.decided):
            if key in given and domain.bit(given[key]) == bit:
                return given[key]
        symbol = domain.symbol(bit)
        if isinstance(symbol, Interval):
            given_number = self.problem.choices.get(key)
            return symbol.nearest(given_number if type(given_number) is int else None)
        return UNSET if isinstance(symbol, Other) else symbol

    def values(self) -> dict[str, Any]:
        """The final value of every option, settings and facts included, by key."""
        return {key: self.final(option) for key, option in self.problem.program.theory.options.items()}

    @cached_property
    def lookup(self) -> Mapping[str, Any]:
        """The same values, each made when it is looked at: checks read few of them."""
        return _Values(self)

    def final(self, option: Option) -> Any:
        """The final value of any option, a setting or a fact included."""
        problem, key = self.problem, option.key
        if option.role == "fact":
            return problem.facts.get(key, UNSET)
        if key in problem.program.variables.index:
            return self.value(key)
        for given in (problem.choices, problem.decided):
            if key in given:
                return given[key]
        spoken = self.spoken(key)
        return option.default if spoken is None else accept(option, spoken.rule.values[0])

    def spoken(self, key: str) -> Proposal | None:
        """The default that speaks for an option that nobody chose."""
        if key not in self._spoken:
            proposals = self.problem.program.defaults.get(key, ())
            self._spoken[key] = next((p for p in proposals if truth(p.when, self.dom)), None)
        return self._spoken[key]

    def fired(self, key: str) -> Guarded | None:
        """The force that fires on an option."""
        forces = self.problem.program.forces.get(key)
        return None if forces is None else next((g for g in forces if truth(g.when, self.dom)), None)

    def changes(self) -> dict[str, Any]:
        """What the free options came to; `UNSET` for one that is left out."""
        problem = self.problem
        given = {k: self.value(k) if self.dom[var] == NO else UNSET for k, var in problem.left_out.items()}
        return {key: given.get(key, UNSET) for key in sorted(problem.free)}

    def unread(self) -> list[tuple[str, Ignored]]:
        """Choices that nothing reads here, with the rule that says so."""
        problem = self.problem
        return [
            (key, rule)
            for key in problem.choices
            for rule in problem.ignored(key)
            if truth(problem.program.node(rule), self.dom)
        ]

    def pins(self) -> dict[int, int]:
        """What the defaults gave, as pins for a variation of the question."""
        names = self.problem.program.variables.names
        given = {*self.problem.choices, *self.problem.decided}
        return {var: self.dom[var] for var in self.problem.program.support if names[var] not in given}


class _Values(Mapping[str, Any]):
    def __init__(self, answer: Answer) -> None:
        self._answer, self._options = answer, answer.problem.program.theory.options

    def __getitem__(self, key: str) -> Any:
        return self._answer.final(self._options[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)
