"""Faults that a rule base shows by itself, each with the smallest one that has it."""

from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memcfg import (
    UNSET,
    Bool,
    Check,
    Default,
    Enum,
    Fact,
    Forbid,
    Force,
    Ignored,
    Int,
    Require,
    RuleError,
    Setting,
)
from memcfg.solver import Resolution, Theory
from memcfg.solver.expr import holds, same
from memcfg.solver.lint import KINDS, lint

RICE = Enum("rice.kind", ("sticky", "loose", "burnt"), doc="what the rice does")
LID = Bool("pot.lid", doc="whether the pot is covered")
STEAM = Enum("pot.steam", ("much", "little", "none"), doc="what is in the air", role="derived")
WATER = Int("pot.water", minimum=1, doc="cups of water")
SALT = Setting("pot.salt", int, doc="pinches of salt")
GAS = Fact("fire.gas", probe="m:f", doc="whether there is gas")
BOTH = (
    Default(RICE, "loose", id="p.rice", because="it cooks by itself"),
    Default(LID, False, id="p.lid", because="water has to go somewhere"),
    Default(WATER, 2, id="p.water", because="rice drinks"),
    Default(SALT, 1, id="p.salt", because="it tastes"),
    Force(STEAM, "much", when=LID.on, id="p.steam.much", because="a lid keeps it in"),
    Force(STEAM, "little", when=LID.off, id="p.steam.little", because="it leaves"),
)
MENU = (RICE, LID, STEAM, WATER, SALT, GAS)


def named(*rules):
    return {finding.name: finding for finding in lint(Theory.build(MENU, (*BOTH, *rules)))}


NONE = "dead-value pot.steam=none"  # the menu has it and no rule gives it


def test_a_value_that_no_rule_gives_is_dead():
    found = named()
    assert set(found) == {NONE}
    assert found[NONE].text == "no rule ever gives this value"
    assert found[NONE].rules == ("p.steam.little", "p.steam.much")


because = "because of something"


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (Forbid(RICE == "burnt", id="p.burnt", because=because), "dead-value rice.kind=burnt"),
        (Ignored(RICE, when=RICE == "burnt", id="p.burnt", because=because), "dead-value rice.kind=burnt"),
        (Forbid(WATER >= 9, id="p.flood", because=because), "dead-value pot.water=at least 9"),
        (Forbid(LID.on, id="p.off", because=because), "always-forced pot.lid"),
        (Force(LID, True, id="p.on", because=because), "always-forced pot.lid"),
        (
            Default(RICE, "sticky", when=LID.on & LID.off, id="p.never", because=because),
            "dead-default p.never",
        ),
        (Default(SALT, 2, when=RICE.unset, id="p.never", because=because), "dead-default p.never"),
        (Forbid(LID.on & (STEAM == "little"), id="p.never", because=because), "dead-rule p.never"),
        (Ignored(WATER, when=STEAM == "none", id="p.never", because=because), "dead-rule p.never"),
        (Check([SALT], lambda v: None, when=LID.unset, id="p.never", because=because), "dead-rule p.never"),
        (Force(STEAM, "none", when=LID.on & GAS.on, id="p.gas", because=because), "contradiction p.gas"),
        (Require(STEAM == "little", when=LID.on & GAS.on, id="p.gas", because=because), "contradiction p.gas"),
        (
            Force(STEAM, "none", when=RICE == "burnt", id="p.burnt", because=because),
            "force-clash p.burnt p.steam.much",
        ),
        (
            Forbid((RICE == "sticky") & LID.off, id="p.open", because=because),
            "conflict-after-one-choice rice.kind=sticky",
        ),
        (
            Forbid((RICE == "sticky") & LID.off & GAS.on, id="p.open", because=because),
            "conflict-after-one-choice rice.kind=sticky",
        ),
    ],
)
def test_a_fault_is_found(rule, name):
    assert name in named(rule)


def test_a_clash_is_shown_by_the_least_request():
    found = named(Force(STEAM, "none", when=(RICE == "burnt") & GAS.on, id="p.burnt", because=because))
    clash = found["force-clash p.burnt p.steam.much"]
    assert clash.witness == ("rice.kind=burnt", "assume.fire.gas=true")  # covered or not, two rules disagree
    assert clash.rules == ("p.burnt", "p.steam.much")


def test_a_choice_in_whose_way_a_default_stands_is_shown_with_the_facts_that_matter():
    found = named(Forbid((RICE == "sticky") & LID.off & GAS.on, id="p.open", because=because))
    choice = found["conflict-after-one-choice rice.kind=sticky"]
    assert choice.witness == ("rice.kind=sticky", "assume.fire.gas=true")
    assert choice.rules == ("p.lid", "p.open")


@pytest.mark.parametrize(
    "rules",
    [
        (Forbid((RICE == "burnt") & GAS.on, id="p.x", because=because),),
        (Default(LID, True, False, when=RICE == "sticky", id="p.x", because=because),),
        (
            Forbid((RICE == "sticky") & LID.off, id="p.x", because=because),
            Default(LID, True, when=RICE == "sticky", id="p.y", because=because),
        ),
        (Ignored(WATER, when=RICE == "burnt", id="p.x", because=because),),
        (Force(LID, True, when=RICE == "sticky", on_user="override", id="p.x", because=because),),
        (Check([SALT, WATER], lambda v: None, id="p.x", because=because),),
    ],
)
def test_what_is_no_fault_is_not_found(rules):
    assert set(named(*rules)) == {NONE}


def test_every_finding_is_of_a_kind_that_is_explained():
    found = named(Force(LID, True, id="p.on", because=because), Forbid(WATER >= 9, id="p.flood", because=because))
    assert {finding.kind for finding in found.values()} <= set(KINDS)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_dead_values_and_defaults_are_those_of_no_request(data, random_bases, outcome):
    """Against every request on every host. That a default gives its second value only where the first is not possible, lint
    does not know: it then takes for alive what the rules allow, and never the other way round."""
    proposals = data.draw(st.sampled_from((1, 3)))
    base = data.draw(random_bases(ignoring=True, most=3, proposals=proposals))
    try:
        theory = Theory.build(base.options, base.rules)
    except RuleError:
        return
    alive, spoken = set(), set()
    for request in every_request(base, theory):
        found = outcome(theory, request)
        if isinstance(found, Resolution):
            values = {key: decision.value for key, decision in found.decisions.items()}
            for key, decision in found.decisions.items():
                chosen = key in request.choices and same(request.choices[key].value, decision.value)
                alive |= {(key, bit_of(theory, key, decision.value))} if chosen or decision.role == "derived" else set()
                spoken |= {rule for rule in theory.rules if speaks(theory, rule, key, values, request)}
    found = {
        finding.name for finding in lint(theory) if finding.kind in ("dead-value", "always-forced", "dead-default")
    }
    truth = expected(theory, alive, spoken)
    assert found == truth if proposals == 1 else found <= truth


def every_request(base, theory):
    from memcfg.solver import Choice, Request
    from memcfg.solver.domain import Interval

    axes = []
    for option in base.options:
        index = theory.variables.index.get(option.key)
        symbols = option.values if index is None else theory.variables.domains[index].symbols
        values = [s.nearest(None) if isinstance(s, Interval) else s for s in symbols if s is not UNSET]
        axes.append(values if option.role == "fact" else [UNSET] if option.role == "derived" else [UNSET, *values])
    for point in product(*axes):
        pairs = list(zip(base.options, point, strict=True))
        choices = {o.key: Choice(v, "command line") for o, v in pairs if o.role != "fact" and v is not UNSET}
        yield Request(choices, {o.key: v for o, v in pairs if o.role == "fact"})


def bit_of(theory, key, value):
    index = theory.variables.index.get(key)
    return None if index is None else theory.variables.domains[index].bit(value)


def speaks(theory, rule, key, values, request):
    default = theory.rules[rule]
    if not isinstance(default, Default) or default.key != key or key in request.choices:
        return False
    forced = any(isinstance(r, Force) and r.key == key and holds(r.when, values) for r in theory.rules.values())
    beaten = any(holds(theory.rules[other].when, values) for other in theory.beaten[rule])
    return holds(default.when, values) and not beaten and not forced


def expected(theory, alive, spoken):
    names = {f"dead-default {rule.id}" for rule in theory.rules.values() if isinstance(rule, Default)}
    names -= {f"dead-default {rule}" for rule in spoken}
    for key in theory.variables.names:
        role, domain = theory.options[key].role, theory.variables.domains[theory.variables.index[key]]
        bits = [1 << i for i, symbol in enumerate(domain.symbols) if symbol is not UNSET]
        dead = [bit for bit in bits if (key, bit) not in alive]
        if role == "choice" and len(bits) - len(dead) <= 1 < len(bits):
            names.add(f"always-forced {key}")
        elif role != "fact":
            names |= {f"dead-value {key}={domain.describe(bit).strip('`')}" for bit in dead}
    return names
