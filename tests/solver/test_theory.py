"""Rule bases that are refused at load: the text, the rules, and the author's file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcfg import (
    UNSET,
    Advise,
    Bool,
    Check,
    Default,
    Enum,
    Fact,
    Fallback,
    Forbid,
    Force,
    Ignored,
    Int,
    RemovedKey,
    RenameKey,
    RenameValue,
    Require,
    RuleError,
    Setting,
    key,
)
from memcfg.solver import Theory

shape = Enum("row.shape", ("round", "square"), doc="the shape of a row")
lid = Bool("row.lid", doc="whether a row has a lid")
size = Int("row.size", doc="how large", minimum=1, maximum=100)
layout = Enum("batch.layout", ("padded", "rows"), doc="how rows are laid out", role="derived")
host = Fact("host.type", probe="m:f", values=("cpu", "cuda"), doc="what computes")
rate = Setting("run.rate", float, minimum=0, doc="how fast")
OPTIONS = [shape, lid, size, layout, host, rate]
WHY = {"because": "of reasons"}


@pytest.mark.parametrize(
    ("rules", "text", "ids"),
    [
        ([Default("row.shap", "round", id="p.a", **WHY)],
         "rule `p.a` names an unknown option `row.shap`: did you mean `row.shape`?", ["p.a"]),
        ([Forbid(key("nothing.like.it") == 3, id="p.a", **WHY)], "rule `p.a` names an unknown option `nothing.like.it`", ["p.a"]),
        ([Check(["run.rte"], str, id="p.a", **WHY)], "rule `p.a` names an unknown option `run.rte`: did you mean `run.rate`?", ["p.a"]),
        ([Advise("{row.sizes} rows", when=lid.on, id="p.a")], "rule `p.a` names an unknown option `row.sizes`: did you mean `row.size`?", ["p.a"]),
        ([Default(shape, "rond", id="p.a", **WHY)], "rule `p.a`: `row.shape`: `rond` is not one of `round`, `square`", ["p.a"]),
        ([Default(shape, "round", "rond", id="p.a", **WHY)], "rule `p.a`: `row.shape`: `rond` is not one of `round`, `square`", ["p.a"]),
        ([Default(lid, 1, id="p.a", **WHY)], "rule `p.a`: `row.lid`: `1` is neither `true` nor `false`", ["p.a"]),
        ([Default(size, None, id="p.a", **WHY)], "rule `p.a`: `row.size`: cannot be `null`", ["p.a"]),
        ([Default(rate, -1, id="p.a", **WHY)], "rule `p.a`: `run.rate`: `-1.0` is too small: at least 0", ["p.a"]),
        ([Default(shape, id="p.a", **WHY)], "rule `p.a` proposes nothing for `row.shape`", ["p.a"]),
        ([Force(size, 101, id="p.a", **WHY)], "rule `p.a`: `row.size`: `101` is too large: at most 100", ["p.a"]),
        ([Force(host, "cpu", id="p.a", **WHY)], "rule `p.a` sets `host.type`, which is a fact: facts are probed", ["p.a"]),
        ([Force(rate, 1.0, id="p.a", **WHY)], "rule `p.a` sets `run.rate`, a setting: a setting only takes a `Default`", ["p.a"]),
        ([Fallback(shape, "round", to="oval", id="p.a", **WHY)], "rule `p.a`: `row.shape`: `oval` is not one of `round`, `square`", ["p.a"]),
        ([Require(shape == "oval", id="p.a", **WHY)], "rule `p.a`: `row.shape`: `oval` is not one of `round`, `square`", ["p.a"]),
        ([Force(lid, True, when=~(size == 0) & lid.off, id="p.a", **WHY)], "rule `p.a`: `row.size`: `0` is too small: at least 1", ["p.a"]),
        ([Forbid(host == UNSET, id="p.a", **WHY)], "rule `p.a`: the fact `host.type` is never unset", ["p.a"]),
        ([Forbid(shape >= 3, id="p.a", **WHY)], "rule `p.a` compares `row.shape`, which is not an integer", ["p.a"]),
        ([Forbid(rate == 0.5, id="p.a", **WHY)],
         "rule `p.a` reads `run.rate`, a setting: declare it as Bool, Enum or Int, or use a Check", ["p.a"]),
        ([Ignored(layout, when=lid.on, id="p.a", **WHY)], "rule `p.a`: a user cannot set `batch.layout`, so it cannot be ignored", ["p.a"]),
        ([Require(lid.on, suggest=["row.lid"], id="p.a", **WHY)],
         "rule `p.a` suggests `row.lid`, which is not an override `key=value` of an option", ["p.a"]),
        ([Require(lid.on, suggest=["row.lid=maybe"], id="p.a", **WHY)],
         "rule `p.a` suggests `row.lid=maybe`, which is not an override `key=value` of an option", ["p.a"]),
        ([Default(lid, True, id="Lid", **WHY)], "`Lid` is not a namespaced id: write `<plugin>.<topic>.<name>` in lower case", ["Lid"]),
        ([Default(lid, True, id="p.a", because=" ")], "rule `p.a` gives no reason: fill in `because`", ["p.a"]),
        ([Default(lid, True, supersedes=["p.b"], id="p.a", **WHY)], "rule `p.a` supersedes `p.b`, which is no other default of `row.lid`", ["p.a"]),
        ([RenameKey("row.form", "row.shap", id="p.a", **WHY)], "rule `p.a` names an unknown option `row.shap`: did you mean `row.shape`?", ["p.a"]),
        ([RenameKey("row.lid", shape, id="p.a", **WHY)], "rule `p.a` renames `row.lid`, which is still in use", ["p.a"]),
        ([RenameValue(shape, "round", "square", id="p.a", **WHY)], "rule `p.a` renames `row.shape=round`, which is still in use", ["p.a"]),
        ([RenameValue(shape, "disc", "oval", id="p.a", **WHY)], "rule `p.a` renames to `row.shape=oval`, which is not a value of `row.shape`", ["p.a"]),
        ([RemovedKey("row.lid", advice="x", id="p.a", **WHY)], "rule `p.a` removes `row.lid`, which is still in use", ["p.a"]),
        ([RenameKey("row.form", shape, id="p.a", **WHY), RemovedKey("row.form", advice="x", id="p.b", **WHY)],
         "rules `p.a` and `p.b` both speak of `row.form`", ["p.b", "p.a"]),
        ([RenameKey("row.a", "row.b", id="p.a", **WHY), RenameKey("row.b", "row.c", id="p.b", **WHY), RenameKey("row.c", "row.a", id="p.c", **WHY)],
         "renames lead in a circle: `p.a` -> `p.b` -> `p.c` -> `p.a`", ["p.a", "p.b", "p.c"]),
        ([RenameValue(shape, "a", "b", id="p.a", **WHY), RenameValue(shape, "b", "a", id="p.b", **WHY)],
         "renames lead in a circle: `p.a` -> `p.b` -> `p.a`", ["p.a", "p.b"]),
        ([Default(lid, True, when=shape == "round", id="p.a", **WHY), Default(shape, "round", when=lid.on, id="p.b", **WHY)],
         "options decide each other in a circle: `row.lid` -> `row.shape` -> `row.lid` (rules `p.a`, `p.b`)", ["p.a", "p.b"]),
        ([Force(lid, True, when=lid.off, id="p.a", **WHY)],
         "options decide each other in a circle: `row.lid` -> `row.lid` (rules `p.a`)", ["p.a"]),
        ([Default(lid, True, when=shape == "round", id="p.a", **WHY), Default(lid, False, when=size > 5, id="p.b", **WHY)],
         "defaults `p.a` and `p.b` of `row.lid` may both apply and differ, and neither condition implies the other", ["p.a", "p.b"]),
        ([Default(rate, 1.0, when=lid.on, id="p.a", **WHY), Default(rate, 2.0, when=shape == "round", id="p.b", **WHY)],
         "defaults `p.a` and `p.b` of `run.rate` may both apply and differ, and neither condition implies the other", ["p.a", "p.b"]),
        ([Default(lid, True, id="p.a", **WHY), Default(lid, False, id="p.b", **WHY)],
         "defaults `p.a` and `p.b` of `row.lid` may both apply and differ, and neither condition implies the other", ["p.a", "p.b"]),
        ([Default(lid, True, id="p.a", supersedes=["p.b"], **WHY), Default(lid, False, id="p.b", supersedes=["p.a"], **WHY)],
         "defaults `p.a` and `p.b` supersede each other", ["p.a", "p.b"]),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_meant_is_refused(rules, text, ids):
    with pytest.raises(RuleError) as raised:
        Theory.build(OPTIONS, rules)
    assert raised.value.problems[0].text.startswith(text)
    assert list(raised.value.rules) == ids
    assert Path(raised.value.source.file) == Path(__file__)
    assert any(raised.value.source == rule.source for rule in rules)


def test_an_id_is_used_once():
    first = Default(lid, True, id="p.a", because="x")
    second = Default(shape, "round", id="p.a", because="x")
    with pytest.raises(RuleError, match=r"rule id `p\.a` is used twice, also at"):
        Theory.build(OPTIONS, [second, first])


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (Bool("row.lid", doc="again"), "option `row.lid` is declared twice, also at"),
        (Enum("row.empty", (), doc="nothing"), "the menu of `row.empty` is empty"),
        (Bool("row lid", doc="a space"), "`row lid` is not a dotted key"),
        (Setting("run.name", str, default=3, doc="a number"), "the default of `run.name`: `3` is not text"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(option, text):
    with pytest.raises(RuleError) as raised:
        Theory.build([*OPTIONS, option], [])
    assert raised.value.problems[0].text.startswith(text)
    assert Path(raised.value.source.file) == Path(__file__)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (lid.on, lid.on & (shape == "round")),
        (lid.on | (shape == "round"), lid.on),
        (size >= 3, size >= 4),
        (size >= 3, size == 3),
        (~lid.on, lid.off),
        (shape.isin("round", "square"), shape == "round"),
        ((lid.on & (shape == "round")) | (size > 9), (size > 10) | (lid.on & (shape == "round") & (size < 3))),
    ],
)
def test_the_default_whose_condition_implies_the_others_speaks_first(wide, narrow):
    rules = [
        Default(layout, "padded", when=wide, id="p.wide", **WHY),
        Default(layout, "rows", when=narrow, id="p.narrow", **WHY),
    ]
    theory = Theory.build(OPTIONS, rules)
    assert theory.beaten == {"p.wide": frozenset({"p.narrow"}), "p.narrow": frozenset()}


def test_defaults_that_agree_or_never_meet_are_not_ambiguous():
    Theory.build(
        OPTIONS,
        [
            Default(lid, True, when=shape == "round", id="p.a", **WHY),
            Default(lid, True, when=size > 5, id="p.b", **WHY),
        ],
    )
    Theory.build(
        OPTIONS,
        [Default(lid, True, when=size > 5, id="p.a", **WHY), Default(lid, False, when=size <= 5, id="p.b", **WHY)],
    )


def test_a_program_is_lowered_once():
    theory = Theory.build(OPTIONS, [Default(lid, True, id="p.a", **WHY)])
    assert theory.program() is theory.program(frozenset())


def test_many_alternatives_do_not_multiply_out():
    options = [Bool(f"many.b{i}", doc="x") for i in range(40)]
    pairs = [options[i].on & options[i + 1].on for i in range(0, 40, 2)]
    condition = pairs[0]
    for pair in pairs[1:]:
        condition = condition | pair
    theory = Theory.build(
        [*options, layout],
        [
            Require(condition, id="many.some", **WHY),
            *(Default(o, False, True, id=f"{o.key}.d", **WHY) for o in options),
        ],
    )
    assert len(theory.program().hard) < 100
