"""Larger rule bases than brute force can take, against an answer set solver."""

from __future__ import annotations

import os
from itertools import count

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from memcfg import UNSET, ConflictError, Default, Fallback, Force, Require, RuleError
from memcfg.solver import Theory
from memcfg.solver.expr import And, Between, In, Not, Or, holds, same

clingo = pytest.importorskip("clingo")
EXAMPLES = int(os.environ.get("MEMCFG_LAW_EXAMPLES", "0"))


class Program:
    """The specification as an answer set program: `v(option, value)` with numbers for both."""

    def __init__(self, base, oracle):
        self.base, self.lines, self.fresh = base, [], count()
        self.order, self.domains = oracle.order(), oracle.domains
        self.of, self.beats = oracle.of, oracle.beats
        for key in self.order:
            values = "; ".join(self.atom(key, value) for value in self.domains[key])
            self.lines.append(f"1 {{ {values} }} 1.")

    def atom(self, key, value):
        at = next((i for i, v in enumerate(self.domains[key]) if same(v, value)), None)
        return "#false" if at is None else f"v({self.order.index(key)},{at})"

    def expr(self, expr):
        """An atom that holds where the expression does."""
        name = f"e{next(self.fresh)}"
        if isinstance(expr, (In, Between)):
            for value in self.domains[expr.key]:
                if holds(expr, {expr.key: value}):
                    self.lines.append(f"{name} :- {self.atom(expr.key, value)}.")
        elif isinstance(expr, Not):
            self.lines.append(f"{name} :- not {self.expr(expr.part)}.")
        elif isinstance(expr, And):
            self.lines.append(f"{name} :- {', '.join(map(self.expr, expr.parts)) or '#true'}.")
        elif isinstance(expr, Or):
            self.lines += [f"{name} :- {self.expr(part)}." for part in expr.parts]
        self.lines.append(f"#defined {name}/0.")
        return name

    def hard(self):
        for key, value in self.base.facts.items():
            self.lines.append(f":- not {self.atom(key, value)}.")
        for rule in self.of[Require]:
            self.lines.append(f":- {self.expr(rule.when)}, not {self.expr(rule.cond)}.")
        for rule in self.of[Force]:
            self.lines.append(f":- {self.expr(rule.when)}, not {self.atom(rule.key, rule.value)}.")
        for rule in self.of[Fallback]:
            self.lines.append(f":- {self.expr(rule.when)}, {self.atom(rule.key, rule.value)}.")

    def chosen(self, key, value):
        guards = []
        for rule in self.of[Fallback]:
            if rule.key == key and same(rule.value, value):
                when = self.expr(rule.when)
                guards.append(when)
                self.lines.append(f":- {when}, not {self.atom(key, rule.to)}.")
        for rule in self.of[Force]:
            if rule.key == key and rule.on_user == "override" and not same(rule.value, value):
                guards.append(self.expr(rule.when))
        self.lines.append(f":- {', '.join(f'not {a}' for a in (self.atom(key, value), *guards))}.")

    def supported(self, key):
        forced, applies = f"forced({self.order.index(key)})", []
        self.lines += [f"{forced} :- {self.expr(r.when)}." for r in self.of[Force] if r.key == key]
        defaults = [d for d in self.of[Default] if d.key == key]
        conditions = {d.id: self.expr(d.when) for d in defaults}
        for default in defaults:
            sooner = [f"not {conditions[o.id]}" for o in defaults if o is not default and self.beats(o, default)]
            name = f"a{next(self.fresh)}"
            applies.append(conditions[default.id])
            self.lines.append(f"{name} :- {', '.join([conditions[default.id], f'not {forced}', *sooner])}.")
            self.lines.append(f":- {', '.join([name, *(f'not {self.atom(key, v)}' for v in default.values)])}.")
            level = len(self.order) - self.order.index(key)
            for rank, value in enumerate(default.values):
                self.lines.append(f"#minimize {{ {rank}@{level},{name} : {name}, {self.atom(key, value)} }}.")
        self.lines.append(f":- {', '.join(f'not {a}' for a in (*applies, forced, self.atom(key, UNSET)))}.")

    def answer(self):
        self.hard()
        self.lines.append("#defined forced/1.")
        for key in self.order:
            if key in self.base.choices:
                self.chosen(key, self.base.choices[key])
            elif key not in self.base.facts:
                self.supported(key)
        control = clingo.Control(["--warn=none"])
        control.add("base", [], "\n".join([*self.lines, "#show v/2."]))
        control.ground([("base", [])])
        best = None
        with control.solve(yield_=True) as models:
            for model in models:
                best = [tuple(a.number for a in s.arguments) for s in model.symbols(shown=True)]
        if best is None:
            return None
        return {self.order[key]: self.domains[self.order[key]][value] for key, value in best}


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES or 40, deadline=None, derandomize=not EXAMPLES, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip
@given(data=st.data())
def test_an_answer_set_solver_finds_the_same(data, random_bases, oracle, outcome):
    base = data.draw(random_bases(most=9))
    try:
        theory = Theory.build(base.options, base.rules)
    except RuleError:
        assume(False)
    found, expected = outcome(theory, base.request), Program(base, oracle(base)).answer()
    if expected is None:
        assert isinstance(found, ConflictError)
    else:
        assert {k: d.value for k, d in found.decisions.items()} == expected
