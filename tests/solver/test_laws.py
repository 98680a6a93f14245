"""Laws that hold of every rule base and every request, looked for in random small ones."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from memcfg import UNSET, ConflictError, Default, Fallback, Force, Ignored, Require, RuleError
from memcfg.solver import Choice, Request, Resolution, Theory, resolve
from memcfg.solver.asked import normalise
from memcfg.solver.excluded import why_excluded
from memcfg.solver.explain import minimal_conflicts
from memcfg.solver.expr import holds, same, show
from memcfg.solver.problem import Problem

EXAMPLES = int(os.environ.get("MEMCFG_LAW_EXAMPLES", "0"))  # thousands, now and then; each run then draws afresh
SOME = settings(
    max_examples=EXAMPLES or 30, deadline=None, derandomize=not EXAMPLES, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip


def build(base):
    try:
        return Theory.build(base.options, base.rules)
    except RuleError:
        return None


@SOME
@given(data=st.data())
def test_the_answer_is_the_one_that_brute_force_finds(data, random_bases, oracle, outcome):
    base = data.draw(random_bases())
    truth = oracle(base)
    theory = build(base)
    assert (theory is None) is truth.ambiguous()
    assume(theory is not None)
    found, expected = outcome(theory, base.request), truth.answer()
    if expected is None:
        assert isinstance(found, ConflictError)
    else:
        assert {k: d.value for k, d in found.decisions.items()} == expected


@SOME
@given(data=st.data())
def test_every_value_was_chosen_probed_forced_or_proposed(data, random_bases, outcome):
    base = data.draw(random_bases())
    theory = build(base)
    assume(theory is not None)
    found = outcome(theory, base.request)
    assume(isinstance(found, Resolution))
    rules = theory.rules
    for key, decision in found.decisions.items():
        allowed = {
            "you": lambda d, key=key: same(d.value, base.choices[key]),
            "fact": lambda d, key=key: same(d.value, base.facts[key]),
            "forced": lambda d: isinstance(rules[d.rule], Force) and same(d.value, rules[d.rule].value),
            "overridden": lambda d: isinstance(rules[d.rule], Force) and same(d.value, rules[d.rule].value),
            "fallback": lambda d: isinstance(rules[d.rule], Fallback) and same(d.value, rules[d.rule].to),
            "default": lambda d: isinstance(rules[d.rule], Default) and same(d.value, rules[d.rule].values[0]),
            "yielded": lambda d: isinstance(rules[d.rule], Default) and d.value in rules[d.rule].values[1:],
            "unset": lambda d: d.value is UNSET,
        }
        assert allowed[decision.kind](decision), (key, decision)


@SOME
@given(data=st.data())
def test_every_conflict_is_a_contradiction_and_minimal(data, random_bases, outcome):
    base = data.draw(random_bases())
    theory = build(base)
    assume(theory is not None)
    assume(isinstance(outcome(theory, base.request), ConflictError))
    problem = Problem(theory.program(), dict(sorted(base.choices.items())), base.facts)
    found = minimal_conflicts(problem)
    assert 1 <= len(found) <= 3
    for tags in found:
        assert not has_model(problem, tags)
        assert all(has_model(problem, tags - {tag}) for tag in tags)
    soft = [{t for t in tags if t.kind in ("you", "default", "unset")} for tags in found]
    assert not any(a & b for a, b in combinations(soft, 2))


def has_model(problem, tags):
    """Whether the clauses with these tags have a model, by looking at every assignment."""
    clauses = [clause for clause, of in problem.clauses if of <= tags]
    variables = sorted({var for clause in clauses for var, _ in clause})
    bits = [[1 << i for i in range(problem.full[var].bit_length())] for var in variables]
    for values in product(*bits):
        x = dict(zip(variables, values, strict=True))
        if all(any(x[var] & mask for var, mask in clause) for clause in clauses):
            return True
    return False


def changed(base, overrides):
    """The request with overrides appended."""
    choices = dict(base.choices)
    for text in overrides:
        if text.startswith("~"):
            del choices[text[1:]]
        else:
            key, _, word = text.partition("=")
            choices[key] = {"true": True, "false": False}.get(word, int(word) if word.isdigit() else word)
    return Request({k: Choice(v, "command line") for k, v in choices.items()}, base.facts)


@pytest.mark.slow
@SOME
@given(data=st.data())
def test_every_repair_resolves_and_no_two_mean_the_same(data, random_bases, outcome):
    base = data.draw(random_bases(ignoring=True))
    theory = build(base)
    assume(theory is not None)
    error = outcome(theory, base.request)
    assume(isinstance(error, ConflictError))
    plans = [resolve(theory, changed(base, repair)) for repair in error.repairs]
    values = [[show(d.value) for d in plan.decisions.values()] for plan in plans]
    assert not any(a == b for a, b in combinations(values, 2))


@pytest.mark.slow
@SOME
@given(data=st.data())
def test_repairs_are_minimal_and_every_single_change_that_mends_is_among_them(data, random_bases, outcome):
    base = data.draw(random_bases())
    base = type(base)(base.options, tuple(r for r in base.rules if plain(r)), base.choices, base.facts)
    theory = build(base)
    assume(theory is not None)
    error = outcome(theory, base.request)
    assume(isinstance(error, ConflictError))
    for repair in error.repairs:
        parts = [p for n in range(1, len(repair)) for p in combinations(repair, n)]
        assert all(isinstance(outcome(theory, changed(base, part)), ConflictError) for part in parts)
    offered = [[show(d.value) for d in resolve(theory, changed(base, r)).decisions.values()] for r in error.repairs]
    for option in base.options:
        if option.role == "choice" and option.kind != "int":
            for value in option.values:
                found = outcome(theory, changed(base, [f"{option.key}={show(value)}"]))
                if isinstance(found, Resolution):
                    assert [show(d.value) for d in found.decisions.values()] in offered


@pytest.mark.slow
@SOME
@given(data=st.data())
def test_where_choices_could_mend_a_request_there_is_a_repair(data, random_bases, outcome):
    base = data.draw(random_bases(ignoring=True))
    base = type(base)(base.options, tuple(r for r in base.rules if plain(r)), base.choices, base.facts)
    theory = build(base)
    assume(theory is not None)
    error = outcome(theory, base.request)
    assume(isinstance(error, ConflictError) and not error.repairs)
    menus = {o.key: [*(o.values or range(6)), UNSET] for o in base.options if o.role == "choice"}
    for values in product(*menus.values()):
        chosen = {k: Choice(v, "f") for k, v in zip(menus, values, strict=True) if v is not UNSET}
        assert isinstance(outcome(theory, Request(chosen, base.facts)), ConflictError), chosen


def plain(rule):
    """Not a rule that answers a choice with another value: those are switched off while repairs are verified."""
    return not isinstance(rule, Fallback) and getattr(rule, "on_user", "conflict") == "conflict"


@SOME
@given(data=st.data(), seed=st.integers(0, 9999))
def test_the_outcome_depends_on_the_set_of_rules_only(data, seed, random_bases, outcome):
    base = data.draw(random_bases(ignoring=True))
    theory = build(base)
    assume(theory is not None)
    shuffled = random.Random(seed)
    options, rules, choices = list(base.options), list(base.rules), list(base.choices.items())
    for items in (options, rules, choices):
        shuffled.shuffle(items)
    request = Request({k: Choice(v, "command line") for k, v in choices}, base.facts)
    assert told(outcome(theory, base.request)) == told(outcome(Theory.build(options, rules), request))


def told(found):
    """Everything a user could see of an outcome."""
    if isinstance(found, Resolution):
        return list(found.decisions.items()), found.notes, found.pending, found.fact_reads
    return type(found).__name__, getattr(found, "conflicts", None), getattr(found, "repairs", None), str(found)


@SOME
@given(data=st.data())
def test_a_choice_that_nothing_reads_is_never_part_of_a_plan(data, random_bases, outcome):
    base = data.draw(random_bases(ignoring=True))
    theory = build(base)
    assume(theory is not None)
    found = outcome(theory, base.request)
    without = [r for r in base.rules if not isinstance(r, Ignored)]
    lenient = outcome(Theory.build(base.options, without), base.request)
    if isinstance(lenient, ConflictError):
        assert isinstance(found, ConflictError)
        return
    values = {k: d.value for k, d in lenient.decisions.items()}
    unread = [r for r in base.rules if isinstance(r, Ignored) and r.key in base.choices and holds(r.when, values)]
    assert isinstance(found, ConflictError) is bool(unread)
    if not unread:
        assert found.decisions == lenient.decisions


@pytest.mark.slow
def test_hash_seeds_change_nothing(tmp_path):
    script = tmp_path / "seeded.py"
    script.write_text(SEEDED, encoding="utf-8")
    root = Path(__file__).resolve().parents[2]
    said = [
        subprocess.run(
            [sys.executable, str(script)], env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True, text=True, check=True, timeout=120,
        ).stdout
        for seed in ("0", "1", "4711")
    ]  # fmt: skip
    assert len(json.loads(said[0])) > 20
    assert said[0] == said[1] == said[2]


SEEDED = """
import itertools, json
from memcfg import Bool, ConflictError, Default, Enum, Forbid, Force, Require
from memcfg.solver import Choice, Request, Theory, resolve

a, b = Enum("p.a", ("x", "y", "z"), doc="a"), Enum("p.b", ("x", "y", "z"), doc="b")
c, d = Bool("p.c", doc="c"), Bool("p.d", doc="d")
rules = [
    Default(a, "x", id="p.a.default", because="a is x"), Default(b, "x", "y", "z", id="p.b.default", because="b"),
    Default(c, False, True, id="p.c.default", because="c"), Force(d, True, when=a == "z", id="p.d.forced", because="d"),
    Forbid((a == "y") & (b == "x"), id="p.not.yx", because="yx"), Require(c.on, when=b == "y", id="p.y.c", because="yc"),
    Forbid((a == "z") & c.on & (b != "z"), id="p.not.zc", because="zc"), Forbid((b == "x") & d.on, id="p.not.xd", because="xd"),
]
theory, said = Theory.build([a, b, c, d], rules), []
for av, bv, cv, dv in itertools.product((None, "x", "y", "z"), (None, "x", "y"), (None, True, False), (None, True, False)):
    given = {k: Choice(v, "f") for k, v in {"p.a": av, "p.b": bv, "p.c": cv, "p.d": dv}.items() if v is not None}
    try:
        said.append(str(resolve(theory, Request(given))))
    except ConflictError as error:
        said.append([str(error), error.repairs])
print(json.dumps(said))
"""


@SOME
@given(data=st.data())
def test_every_default_that_gave_way_has_its_reason(data, random_bases, outcome):
    base = data.draw(random_bases())
    theory = build(base)
    assume(theory is not None)
    found = outcome(theory, base.request)
    assume(isinstance(found, Resolution))
    for key, decision in found.decisions.items():
        if decision.kind != "yielded":
            continue
        first = theory.rules[decision.rule].values[0]
        kept = normalise(theory, base.request)
        answer = Problem(theory.program(kept.pending), kept.values, kept.facts).solve()
        rules = why_excluded(answer, key, first)
        assert rules, (key, decision)
        fewer = [r for r in theory.rules.values() if not isinstance(r, (Force, Require, Fallback)) or r in rules]
        alone = Theory.build(theory.options.values(), fewer)
        before = alone.order[: alone.order.index(key)] if key in alone.order else []
        pinned = {k: found.decisions[k].value for k in before if found.decisions[k].value is not UNSET}
        assume(set(alone.order) == set(theory.order) and alone.order == theory.order)
        assume(not any(isinstance(r, Default) for r in rules))
        facts = {k: v for k, v in pinned.items() if theory.options[k].role == "fact"}
        chosen = {k: v for k, v in pinned.items() if k not in facts} | {key: first}
        held = frozenset(r.id for r in rules)
        problem = Problem(alone.program(), chosen, facts, muted=held)
        assert problem.core() is not None, (key, decision, rules)
