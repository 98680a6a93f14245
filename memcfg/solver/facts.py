"""Which facts a plan depends on: those without which some rule would not be settled.

A rule that reads a fact but that the other values settle by themselves (`liger and cuda`, where Liger is off) does not
make the plan depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from memcfg.solver.decision import Decision
from memcfg.solver.expr import Not, Or, holds, mentions
from memcfg.solver.lower import Lit, Node, Variables, truth
from memcfg.solver.rules import Advise, Check, Default, Require, Rule

if TYPE_CHECKING:
    from memcfg.solver.problem import Answer


def fact_readers(
    facts: Set[str], rules: Iterable[Rule], variables: Variables
) -> Iterator[tuple[Rule, Node]]:  # fmt: skip
    """Rules that decide something by a fact, each with what has to be settled. Checks come later, advice decides
    nothing."""
    for rule in rules:
        if isinstance(rule, (Advise, Check)) or not hasattr(rule, "when"):
            continue
        expr = Or((Not(rule.when), rule.cond)) if isinstance(rule, Require) else rule.when
        if not facts.isdisjoint(mentions(expr)):
            yield rule, variables.node(expr)


class FactChecks:
    """What checks say of facts: those by which some check applies or not, and for each check those that it reads."""

    def __init__(self, facts: Set[str], rules: Iterable[Rule]) -> None:
        checks = [rule for rule in rules if isinstance(rule, Check)]
        self.applied_by = {key for check in checks for key in mentions(check.when)} & facts
        self.reading = [(c.when, read) for c in checks if (read := facts & set(c.reads))]

    def read(self, values: Mapping[str, Any]) -> set[str]:
        """The facts that the checks depend on, where the options have these values."""
        return self.applied_by.union(*(read for when, read in self.reading if holds(when, values)))


def fact_reads(answer: Answer, decisions: Mapping[str, Decision]) -> tuple[str, ...]:
    """The facts that an answer depends on, sorted."""
    program, choices = answer.problem.program, answer.problem.choices
    names, options = program.variables.names, program.theory.options
    unknown = [
        program.variables.full[v] if options[names[v]].role == "fact" else answer.dom[v] for v in range(len(names))
    ]
    found: set[str] = set()
    for rule, node in program.fact_readers:
        if not (isinstance(rule, Default) and rule.key in choices):
            found.update(names[v] for v in _unsettled(node, unknown))
    found |= program.fact_checks.read({key: d.value for key, d in decisions.items()})
    found |= {key for d in decisions.values() if d.kind == "yielded" for key in d.antecedents}
    return tuple(sorted(key for key in found if options[key].role == "fact"))


def _unsettled(node: Node, dom: Sequence[int]) -> Iterator[int]:
    """Variables on which the truth of the node still depends."""
    if truth(node, dom) is not None:
        return
    if isinstance(node, Lit):
        yield node.var
        return
    for part in node.parts:
        yield from _unsettled(part, dom)
