"""A laboratory: a registry of exactly the plugins that a test puts into it, and questions about what requests come to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memcfg.errors import Conflict, ConflictError, MemcfgError, Note, Problem, RequestError
from memcfg.plan import Decision, Plan
from memcfg.registry.loader import environment
from memcfg.registry.plugin import Plugin
from memcfg.registry.registry import Registry, load
from memcfg.solver.request import Choice, Request
from memcfg.testing.outcome import CPU
from memcfg.testing.rules import exercised


class Lab:
    """Holds memcfg's core and what is added. `facts` is what the host is like: a single CPU, unless changed."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = dict(CPU)
        self._given: list[Plugin] = []
        self._named: set[str] = set()
        self._made: tuple[object, Registry] | None = None

    def add(self, *plugins: Plugin | str) -> Lab:
        """Put plugins in: as objects, or installed ones by their name or their distribution's ("memcfg": all its own)."""
        self._given += [plugin for plugin in plugins if isinstance(plugin, Plugin)]
        self._named |= {plugin for plugin in plugins if isinstance(plugin, str)}
        return self

    def host(self, **facts: Any) -> Lab:
        """Say what the host is like: `lab.host(device__type="cuda", device__capability=90)`."""
        self.facts.update((_key(name), value) for name, value in facts.items())
        return self

    @property
    def registry(self) -> Registry:
        """What is in the lab. Raises `PluginError` where it does not fit together."""
        held = tuple(map(id, self._given)), frozenset(self._named), environment()
        if self._made is None or self._made[0] != held:
            self._made = held, load(discover=tuple(sorted(self._named)) or False, extra=self._given, strict=True)
        return self._made[1]

    def resolve(self, *overrides: str, **values: Any) -> Answer:
        """Resolve overrides as they are typed (`"loss=acme"`) and values by key (`acme__power=3`)."""
        registry = self.registry
        try:
            request = self._request(overrides, {_key(name): value for name, value in values.items()}, registry)
            return Answer(registry.plan(request))
        except (RequestError, ConflictError) as error:
            return Answer(error=error)

    def _request(self, overrides: Sequence[str], values: dict[str, Any], registry: Registry) -> Request:
        from memcfg.compose.facts import probe

        if overrides:
            from memcfg.compose.request import compose

            request = compose(overrides, registry=registry)
        else:
            request = Request(facts=probe(registry, values, skip=self.facts))
        choices = {key: Choice(value, "test") for key, value in values.items()}
        stated = {key: value for key, value in self.facts.items() if key in registry.options}
        return replace(request, choices={**request.choices, **choices}, facts={**request.facts, **stated})


def _key(name: str) -> str:
    return name.replace("__", ".")


@dataclass(frozen=True)
class Answer:
    """What a request came to. Asking for a value where there is no plan raises the error that there is instead."""

    resolved: Plan | None = None
    error: MemcfgError | None = field(default=None)

    @property
    def plan(self) -> Plan:
        if self.resolved is None:
            raise self.error or AssertionError("there is no plan")
        return self.resolved

    def decision(self, key: str) -> Decision:
        """The value with everything that is known of it."""
        return self.plan.decisions[key]

    def value(self, key: str) -> Any:
        return self.plan[key]

    def because(self, key: str) -> str | None:
        """The reason of the rule that decided; None where the user did, or the host."""
        decision = self.decision(key)
        if decision.rule is not None:
            exercised(decision.rule)
        return decision.because

    def note(self, rule: str) -> Note:
        """The note that the rule left. Fails if there is none."""
        found = [note for note in self.plan.notes if note.rule == rule]
        if not found:
            raise AssertionError(f"`{rule}` left no note; these did: {[note.rule for note in self.plan.notes]}")
        exercised(rule)
        return found[0]

    def conflict(self, *, blames: Collection[str] | str = (), suggests: Sequence[str] | str = ()) -> ConflictError:
        """Fail unless there is a conflict in which all rules of `blames` take part, and which the overrides of `suggests`,
        appended together, would repair."""
        if not isinstance(self.error, ConflictError):
            raise AssertionError(f"there is no conflict: {self._told()}")
        blamed = _listed(blames)
        if missing := sorted(set(blamed) - _rules(self.error.conflicts)):
            rules = sorted(_rules(self.error.conflicts))
            raise AssertionError(f"{', '.join(missing)} takes no part in the conflict; these rules do: {rules}")
        wanted, repairs = set(_listed(suggests)), [set(repair) for repair in self.error.repairs]
        if wanted and wanted not in repairs:
            raise AssertionError(f"{sorted(wanted)} is not suggested; these repairs are: {self.error.repairs}")
        exercised(*blamed)
        return self.error

    def refused(self, key: str) -> Problem:
        """Fail unless the request itself is wrong about this key; returns what is wrong."""
        problems = self.error.problems if isinstance(self.error, RequestError) else ()
        for problem in problems:
            if problem.key == key:
                return problem
        raise AssertionError(f"`{key}` is not refused: {self._told()}")

    def _told(self) -> str:
        return "it resolves" if self.error is None else f"{type(self.error).__name__}: {self.error}"


def _rules(conflicts: Sequence[Conflict]) -> set[str]:
    return {rule for conflict in conflicts for rule in conflict.rules}


def _listed(words: Collection[str] | str) -> list[str]:
    return [words] if isinstance(words, str) else list(words)
