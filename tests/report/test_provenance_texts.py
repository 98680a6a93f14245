"""Explanations, reasons against and differences, word for word."""

import pytest

from memcfg import UNSET, Bool, Conflict, ConflictError, Decision, Enum, Force, Plan
from memcfg.provenance import compare, trail
from memcfg.report.console import Terminal
from memcfg.report.provenance import (
    change_data,
    show_difference,
    show_impossible,
    show_possible,
    show_trail,
    trail_data,
)

RICE = Enum("rice.kind", ("sticky", "loose"), doc="what the rice does")
LID = Bool("pot.lid", doc="whether the pot is covered")
COVERED = Force(
    LID, True, id="pot.lid.sticky", when=RICE == "sticky", because="steam makes rice stick", ref="a cookbook"
)
PLAN = Plan(
    decisions={
        "fire.kind": Decision("gas", "fact", origin="probed", role="fact"),
        "meal.name": Decision("sushi", "you", origin="command line", requested="sushi"),
        "pot.lid": Decision(True, "forced", "pot.lid.sticky", "steam makes rice stick", ("rice.kind",)),
        "pot.key": Decision("8fd3", "you", origin="command line", requested="8fd3", role="setting", secret=True),
        "rice.kind": Decision(
            "sticky", "default", "rice.kind.sushi", "sushi falls apart otherwise", ("fire.kind", "meal.name")
        ),
    }
)
PLAIN = Plan(
    decisions={
        "fire.kind": Decision("gas", "fact", origin="probed", role="fact"),
        "meal.name": Decision("stew", "default", "meal.name.default", "everybody likes it"),
        "pot.lid": Decision(False, "default", "pot.lid.default", "water has to go somewhere"),
        "pot.key": Decision("b11c", "you", origin="key.yaml:3", requested="b11c", role="setting", secret=True),
        "rice.kind": Decision(UNSET, "unset"),
    }
)


def shown(things, capsys) -> str:
    Terminal(color=False).show(*things)
    return capsys.readouterr().out


def test_the_way_back_from_a_value_to_what_was_typed(capsys):
    assert shown(show_trail(trail(PLAN, "pot.lid"), LID, {COVERED.id: COVERED}), capsys) == (
        """\
pot.lid: whether the pot is covered

pot.lid = true
│ forced, because steam makes rice stick [pot.lid.sticky]
│ when `rice.kind=sticky`
│ see a cookbook
└─ rice.kind = sticky
   │ default, because sushi falls apart otherwise [rice.kind.sushi]
   ├─ fire.kind = gas
   │    found on this host
   └─ meal.name = sushi
        you: command line
"""
    )


def test_what_was_told_once_is_told_once(capsys):
    twice = {**PLAN.decisions, "pot.lid": Decision(True, "forced", "r", "b", ("meal.name", "rice.kind"))}
    twice["meal.name"] = Decision("sushi", "default", "m", "c", ("rice.kind",))
    twice["rice.kind"] = Decision("sticky", "default", "k", "d", ("fire.kind",))
    text = shown(show_trail(trail(Plan(twice), "pot.lid"), None, {}), capsys)
    assert text.count("fire.kind") == 1
    assert "└─ rice.kind = sticky\n     (its reasons stand above)\n" in text


def test_a_trail_as_data():
    data = trail_data(trail(PLAN, "pot.lid"), {COVERED.id: COVERED})
    assert (data["key"], data["value"], data["kind"], data["when"]) == ("pot.lid", True, "forced", "rice.kind=sticky")
    assert data["source"].endswith(f"test_provenance_texts.py:{COVERED.source.line}")
    (rice,) = data["from"]
    assert [cause["key"] for cause in rice["from"]] == ["fire.kind", "meal.name"]
    assert rice["from"][1]["requested"] == "sushi"


def test_an_unknown_option_has_no_trail():
    with pytest.raises(KeyError):
        trail(PLAN, "pot.size")


def test_plans_side_by_side(capsys):
    assert shown(show_difference(compare(PLAIN, PLAN), ("", "meal=sushi")), capsys) == (
        """\
A: the plain run
B: meal=sushi

option     A      B       why
meal.name  stew   sushi   you: command line
pot.key    ***    ***     you: command line
pot.lid    false  true    forced, because steam makes rice stick
                          [pot.lid.sticky]; follows from `meal.name`
rice.kind  unset  sticky  default, because sushi falls apart otherwise
                          [rice.kind.sushi]; follows from `meal.name`

4 options differ
"""
    )
    (secret,) = (change_data(c) for c in compare(PLAIN, PLAN) if c.key == "pot.key")
    assert (secret["a"]["value"], secret["b"]["requested"]) == ("***", "***")


def test_what_is_unset_on_one_side_has_its_reason_on_the_other(capsys):
    text = shown(show_difference(compare(PLAN, PLAIN), ("a", "b")), capsys)
    assert "A: default, because sushi falls apart" in text


def test_plans_without_a_difference(capsys):
    assert shown(show_difference(compare(PLAN, PLAN), ("a", "b")), capsys) == (
        "every option has the same value in both\n"
    )


def test_a_value_that_is_possible(capsys):
    assert shown(show_possible("meal=sushi", compare(PLAIN, PLAN)[:1]), capsys) == (
        "`meal=sushi` is possible: append it to the command\n"
    )
    assert shown(show_possible("meal=sushi", compare(PLAIN, PLAN)), capsys) == (
        """\
`meal=sushi` is possible: append it to the command

it would change as well

option     now    then    why
pot.lid    false  true    forced, because steam makes rice stick
                          [pot.lid.sticky]; follows from `meal.name`
rice.kind  unset  sticky  default, because sushi falls apart otherwise
                          [rice.kind.sushi]; follows from `meal.name`
"""
    )


def test_a_value_that_is_not_possible(capsys):
    chain = "suppose `pot.lid=false`\n`pot.lid.sticky` sets `pot.lid=true`, because steam makes rice stick"
    error = ConflictError([Conflict(("pot.lid",), ("pot.lid.sticky",), chain)], [["rice.kind=loose"]])
    assert shown(show_impossible("pot.lid=false", error), capsys) == (
        """\
`pot.lid=false` is not possible

  suppose `pot.lid=false`
  `pot.lid.sticky` sets `pot.lid=true`, because steam makes rice stick

  to make it possible, append
    rice.kind=loose
"""
    )
    alone = ConflictError([Conflict((), (), chain)], [])
    assert shown(show_impossible("pot.lid=false", alone), capsys).endswith("\n  no single change makes it possible\n")
