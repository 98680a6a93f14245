"""What a request resolves to. This text is the specification.

**Objects.** A *choice* may be set by the user, a *fact* is probed on the host (or assumed), a *derived* option is set
by rules only. A *setting* has any type and is never searched. An option that nobody chose and for which no rule
proposes anything is `UNSET`, which is not `None`.

**1. Normalise.** `RenameKey` and `RenameValue` are applied and leave a deprecation note; what results is still the
user's choice. A `RemovedKey`, an unknown key, a value of the wrong type or outside its menu or range, a derived option
or a fact set as an option: all of them together are one `RequestError`.

**2. Theory.** An unordered set of clauses, each tagged with its origin:

- each known fact;
- each hard rule: `Require` (when -> cond), `Force` (when -> option = value), `Fallback` (when -> option != value);
- each choice `option = value`, weakened by exactly the rules that declare that they may override it: a
  `Force(on_user="override")` to another value, and a `Fallback` from this value (which then also says -> option = to);
- for each option that nobody chose, its *support*: where a `Default` applies, no more specific one does, and no
  `Force` on the option fires, the option has one of that default's values; where no default applies and no force fires
  it is unset. The solver therefore never invents a value that no rule proposed.

A fact that is not known yet makes every rule that reads it wait: it is left out, and listed in `Resolution.pending`.

**3. Order.** Options are ordered by which options the conditions of their `Default`, `Force` and `Fallback` rules read
(a circle is a load error), ties by name.

**4. Answer.** The first model in that order, each option trying its proposals in their order. It is a function of the
*set* of rules: registration order, hash seed and plugin order change nothing.

**5. Specificity.** Of two defaults that apply, the one whose condition implies the other's over the domains speaks; a
tie is a load error unless one `supersedes` the other.

**6. On the answer.** A choice that an `Ignored` rule says nothing reads is a conflict. Settings take the user's value,
else the most specific `Default` that applies, else the option's own default. `Check` rules test the final values; what
they return is a conflict. `Advise` adds a note. Overrides and fallbacks that took effect leave a warning.

**Failure.** `ConflictError`: see `memcfg.solver.explain` and `memcfg.solver.repair`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from memcfg.errors import ConflictError, Note, RequestError, RuleError
from memcfg.solver.asked import SUPPOSED, Asked, normalise
from memcfg.solver.check import failed
from memcfg.solver.decision import Decision, Pending
from memcfg.solver.excluded import why_excluded
from memcfg.solver.explain import contradiction, failed_checks, unread
from memcfg.solver.expr import UNSET, Option, holds, same, show
from memcfg.solver.facts import fact_reads
from memcfg.solver.lower import truth
from memcfg.solver.problem import Answer, Problem
from memcfg.solver.propagate import Entangled, Unsatisfiable
from memcfg.solver.request import Choice, Request
from memcfg.solver.rules import Advise, Default, Fallback, Rule
from memcfg.solver.theory import Program, Tag, Theory
from memcfg.solver.values import Refused, accept
from memcfg.solver.wellformed import PLACEHOLDER


@dataclass(frozen=True)
class Resolution:
    """`decisions`: every option, settings and facts included, by key in alphabetical order. `pending`: facts that are
    not known, with the rules that wait for them. `fact_reads`: facts without which some rule would not be settled
    here; where they differ, the same request might resolve otherwise."""

    decisions: dict[str, Decision]
    notes: tuple[Note, ...] = ()
    pending: tuple[Pending, ...] = ()
    fact_reads: tuple[str, ...] = ()


def resolve(theory: Theory, request: Request) -> Resolution:
    """Resolve a request. Raises `RequestError`, `ConflictError`, or `RuleError` where the rules are too entangled."""
    asked = normalise(theory, request)
    problem = _problem(theory, asked)
    try:
        answer = settle(problem, asked)
        decisions = _Decisions(answer, asked, answer.values()).all()
    except Entangled as error:
        raise _entangled(theory, error) from None
    values = {key: d.value for key, d in decisions.items()}
    notes = (*asked.notes, *_overrides(decisions), *_advice(problem.program, values))
    return Resolution(decisions, notes, problem.program.waiting, fact_reads(answer, decisions))


def contradicted(theory: Theory, request: Request) -> ConflictError | None:
    """Why a request has no model. None where it has one, be it that a choice is unread in it or a check fails: that is
    found several times faster than `resolve` finds all. Raises as `resolve` otherwise."""
    asked = normalise(theory, request)
    problem = _problem(theory, asked)
    try:
        problem.solve()
    except Unsatisfiable:
        return contradiction(problem, asked)
    except Entangled as error:
        raise _entangled(theory, error) from None
    return None


def _problem(theory: Theory, asked: Asked) -> Problem:
    decided = {key: decision.value for key, decision in asked.decided.items()}
    return Problem(theory.program(asked.pending), asked.values, asked.facts, decided=decided, stated=asked.stated)


def why_not(theory: Theory, request: Request, key: str, value: Any) -> ConflictError | None:
    """Why an option (a derived one too) cannot have a value: the same question with a pretended choice that no rule may
    answer otherwise. None where it can. The repairs of the error are what would make it possible. Raises `RequestError` where the value is none of the option's."""
    option = theory.options.get(key)
    if option is None or option.role != "derived":  # the way of any choice: renames, spelling, range
        choices = {**request.choices, key: Choice(value, SUPPOSED)}
        asked = normalise(theory, replace(request, choices=choices))
    else:
        try:
            supposed = Choice(accept(option, value), SUPPOSED)
        except Refused as refused:
            raise RequestError(refused.problem) from None
        asked = normalise(theory, request)
        asked = replace(asked, choices=dict(sorted({**asked.choices, key: supposed}.items())))
    problem = Problem(theory.program(asked.pending), asked.values, asked.facts, stated=asked.stated)
    held = frozenset(k for k, choice in asked.choices.items() if choice.origin == SUPPOSED)
    muted = frozenset(g.rule.id for k in held for g in problem.guards(k))
    try:
        settle(replace(problem, muted=muted, held=held), asked)
    except ConflictError as error:
        return error
    except Entangled as error:
        raise _entangled(theory, error) from None
    return None


def settle(problem: Problem, asked: Asked) -> Answer:
    """The answer to a question, if its choices are all read and its checks pass. Raises `ConflictError` otherwise."""
    try:
        answer = problem.solve()
    except Unsatisfiable:
        raise contradiction(problem, asked) from None
    if answer.unread():
        raise unread(answer, asked)
    if failures := failed(answer):
        raise failed_checks(answer, asked, failures)
    return answer


def _entangled(theory: Theory, error: Entangled) -> RuleError:
    names = (t.name for t in error.tags if isinstance(t, Tag))
    ids = [n for n in dict.fromkeys(names) if n in theory.rules][:6]
    named = ", ".join(f"`{i}`" for i in ids)
    return RuleError(f"the rules are too entangled to resolve this request; most often met: {named}", ids)


class _Decisions:
    """Why each option of an answer has its value."""

    def __init__(self, answer: Answer, asked: Asked, values: Mapping[str, Any]) -> None:
        self.answer, self.asked, self.values = answer, asked, values
        self.theory = answer.problem.program.theory

    def all(self) -> dict[str, Decision]:
        return {key: self._kept(option, self._decide(option)) for key, option in self.theory.options.items()}

    def _kept(self, option: Option, decision: Decision) -> Decision:
        return replace(decision, secret=option.secret, free=option.free) if option.secret or option.free else decision

    def _decide(self, option: Option) -> Decision:
        if option.role == "fact":
            return self._fact(option)
        value = self.values[option.key]
        if option.key in self.asked.choices:
            return self._chosen(option, value)
        if option.key in self.asked.decided:
            return self.asked.decided[option.key]
        return self._unchosen(option, value)

    def _fact(self, option: Option) -> Decision:
        if option.key not in self.asked.facts:
            return Decision(UNSET, "unset", because="it is not known yet", role="fact")
        origin = "assumed" if option.key in self.asked.assumed else "probed"
        return Decision(self.asked.facts[option.key], "fact", origin=origin, role="fact")

    def _chosen(self, option: Option, value: Any) -> Decision:
        choice = self.asked.choices[option.key]
        renamed = self.asked.renamed.get(option.key)
        typed = renamed.value if renamed else choice.value
        if same(value, choice.value):
            rule, because = (renamed.rule.id, renamed.rule.because) if renamed else (None, None)
            return Decision(value, "you", rule, because, (), choice.origin, typed, option.role)
        guard = next(g.rule for g in self.answer.problem.guards(option.key) if truth(g.when, self.answer.dom))
        kind = "fallback" if isinstance(guard, Fallback) else "overridden"
        return self._by(guard, value, kind, option, origin=choice.origin, requested=typed)

    def _by(self, rule: Rule, value: Any, kind: str, option: Option, **fields: Any) -> Decision:
        return Decision(
            value, kind, rule.id, rule.because, self.theory.antecedents[rule.id], role=option.role, **fields
        )

    def _unchosen(self, option: Option, value: Any) -> Decision:
        if forced := self.answer.fired(option.key):
            return self._by(forced.rule, value, "forced", option)
        spoken = self.answer.spoken(option.key)
        if spoken is None:
            return Decision(value, "unset" if value is UNSET else "default", role=option.role)
        if option.kind == "setting" or same(value, spoken.rule.values[0]):
            return self._by(spoken.rule, value, "default", option)
        return self._yielded(spoken.rule, value, option)

    def _yielded(self, rule: Default, value: Any, option: Option) -> Decision:
        reasons = why_excluded(self.answer, option.key, rule.values[0])
        because = "; ".join(dict.fromkeys(r.because for r in reasons)) or rule.because
        keys = {key for r in (rule, *reasons) for key in self.theory.antecedents[r.id]} - {option.key}
        text = f"`{show(rule.values[0])}` is not possible here: {because}"
        return Decision(value, "yielded", rule.id, text, tuple(sorted(keys)), role=option.role)


def _overrides(decisions: Mapping[str, Decision]) -> Iterator[Note]:
    for key, d in decisions.items():
        if d.kind in ("overridden", "fallback") and d.rule is not None:
            was, now = f"{key}={show(d.requested)}", f"{key}={show(d.value)}"
            text = f"`{was}` ({d.origin}) is answered by `{now}`, because {d.because}"
            yield Note("warning", d.rule, text, {"key": key, "requested": d.requested, "value": d.value})


def _advice(program: Program, values: Mapping[str, Any]) -> Iterator[Note]:
    options = program.theory.options
    for rule in program.rules.values():
        if isinstance(rule, Advise) and holds(rule.when, values):
            text = PLACEHOLDER.sub(lambda m: "***" if options[m[1]].secret else show(values[m[1]]), rule.text)
            yield Note(rule.level, rule.id, text)
