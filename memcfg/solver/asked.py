"""From a request to values that the theory knows: renames, removals, spelling, types, ranges.

Lexical, before any logic. Everything wrong is reported at once, as one `RequestError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memcfg.errors import Note, Problem, RequestError
from memcfg.solver.decision import Decision
from memcfg.solver.expr import PENDING, UNSET, Option, same, show
from memcfg.solver.request import Choice, Request
from memcfg.solver.rules import Default, Fallback, Force, Rule
from memcfg.solver.theory import Theory
from memcfg.solver.values import Refused, accept, closest

_COMMAND_LINE = "command line"
SUPPOSED = "supposed"
"""The origin of a choice that nobody made: the question is what would follow from it."""


class Renamed(NamedTuple):
    """What the user wrote under an old name: the value, the rule that says so, and the override as it was written."""

    value: Any
    rule: Rule
    written: str


@dataclass(frozen=True)
class Asked:
    """A request that fits the theory. `pending`: declared facts that nobody knows yet."""

    choices: Mapping[str, Choice]
    facts: Mapping[str, Any]
    assumed: frozenset[str]
    pending: frozenset[str]
    notes: tuple[Note, ...] = ()
    renamed: Mapping[str, Renamed] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    """Options whose value no message may show."""

    decided: Mapping[str, Decision] = field(default_factory=dict)
    stated: Mapping[str, tuple[str, Any]] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        return {key: choice.value for key, choice in self.choices.items()}


def normalise(theory: Theory, request: Request) -> Asked:
    """Rename, check and sort a request. Raises `RequestError` with every problem in it."""
    reading = _Reading(theory)
    for key in sorted(request.choices):
        reading.choose(key, request.choices[key])
    facts = {key: value for key, value in sorted(request.facts.items()) if value is not PENDING}
    facts = {key: reading.fact(key, value, key in request.assumed) for key, value in facts.items()}
    if reading.problems:
        raise RequestError(*reading.problems)
    return Asked(
        dict(sorted(reading.choices.items())), facts, frozenset(request.assumed), theory.facts.difference(facts),
        (*request.notes, *reading.notes), reading.renamed, theory.secrets,
        _standing(theory, request, reading.choices),
        {fact: found for fact, found in request.stated.items() if fact in facts and found[0] in reading.choices},
    )  # fmt: skip


def _standing(theory: Theory, request: Request, choices: Mapping[str, Choice]) -> dict[str, Decision]:
    """Earlier decisions that still say something: with a value, about an option that nobody chose."""
    options = theory.options
    return {
        key: decision
        for key, decision in sorted(request.decided.items())
        if key in options and options[key].role != "fact" and key not in choices and decision.value is not UNSET
    }


class _Reading:
    """What has been read of a request so far."""

    def __init__(self, theory: Theory) -> None:
        self.theory = theory
        self.choices: dict[str, Choice] = {}
        self.renamed: dict[str, Renamed] = {}
        self.notes: list[Note] = []
        self.problems: list[Problem] = []
        self._keys, self._removed, self._values = theory.renamed_keys, theory.removed, theory.renamed_values

    def choose(self, key: str, choice: Choice) -> None:
        """Take one choice, or note what is wrong with it."""
        old, rules = (key, choice.value), []
        while key in self._keys:
            rules.append(self._keys[key])
            key = self._keys[key].new
        if key in self._removed:
            removed = self._removed[key]
            self.problems.append(Problem(f"was removed: {removed.because}", key=key, fix=removed.advice))
            return
        option = self.theory.options.get(key)
        if option is None or option.role in ("fact", "derived"):
            self.problems.append(self._unknown(key) if option is None else self._not_yours(option))
            return
        value, more = self._current(key, choice.value)
        try:
            value = accept(option, value)
        except Refused as refused:
            self.problems.append(refused.problem)
            return
        self._keep(key, Choice(value, choice.origin), old, [*rules, *more])

    def _current(self, key: str, value: Any) -> tuple[Any, list[Rule]]:
        """The value under its current name."""
        rules: list[Rule] = []
        while rule := next((r for r in self._values.get(key, ()) if same(r.old, value)), None):
            rules.append(rule)
            value = rule.new
        return value, rules

    def _keep(self, key: str, choice: Choice, old: tuple[str, Any], rules: list[Rule]) -> None:
        other = self.choices.get(key)
        if other is not None and not same(other.value, choice.value):
            first = other.origin == _COMMAND_LINE, choice.origin == _COMMAND_LINE
            if first[0] is first[1]:
                text = f"is set twice under two names: `{show(other.value)}` and `{show(choice.value)}`"
                earlier = old[0] if rules else self.renamed[key].written.partition("=")[0]
                self.problems.append(Problem(text, key=key, fix=f"keep one of them: `~{earlier}`"))
                return
            if first[0]:
                return
        self.choices[key] = choice
        if rules:
            written = f"{old[0]}={show(old[1])}"
            self.renamed[key] = Renamed(old[1], rules[-1], written)
            self._note_renames(f"{key}={show(choice.value)}", written, rules)

    def _note_renames(self, now: str, written: str, rules: list[Rule]) -> None:
        because = "; ".join(dict.fromkeys(r.because for r in rules))
        data = {"old": written, "new": now}
        self.notes.append(Note("deprecation", rules[-1].id, f"`{written}` is now `{now}`: {because}", data))

    def _unknown(self, key: str) -> Problem:
        known = [k for k, o in self.theory.options.items() if o.role not in ("fact", "derived")]
        return Problem("no such option", key=key, nearest=closest(key, known))

    def _not_yours(self, option: Option) -> Problem:
        if option.role == "fact":
            text, fix = "is a fact of the host, not an option", f"to assume it, write `assume.{option.key}=...`"
            return Problem(text, key=option.key, fix=fix)
        by = [
            r.id
            for r in self.theory.rules.values()
            if isinstance(r, (Default, Force, Fallback)) and r.key == option.key
        ]
        text = "is derived by rules and cannot be set"
        return Problem(text, key=option.key, fix=f"it follows from {', '.join(f'`{i}`' for i in by)}" if by else None)

    def fact(self, key: str, value: Any, assumed: bool) -> Any:
        """A fact's value, checked."""
        spelled = f"assume.{key}" if assumed else key
        option = self.theory.options.get(key)
        if option is None or option.role != "fact":
            facts = [k for k, o in self.theory.options.items() if o.role == "fact"]
            near = tuple(f"assume.{n}" if assumed else n for n in closest(key, facts))
            self.problems.append(Problem("no such fact", key=spelled, nearest=near))
            return UNSET
        try:
            return accept(option, value)
        except Refused as refused:
            text = refused.problem.text if assumed else f"its probe gave a wrong value: {refused.problem.text}"
            self.problems.append(Problem(text, key=spelled, nearest=refused.problem.nearest))
            return UNSET
