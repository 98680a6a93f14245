"""The valid points of a grid are those that resolve one by one."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from memcfg import UNSET, Bool, Check, Enum, Forbid, Force, Ignored, RenameValue, RequestError, RuleError, Setting
from memcfg.solver import Choice, Request, Resolution, Theory
from memcfg.solver.grid import valid_points

shape = Enum("row.shape", ("round", "square"), doc="the shape of a row")
lid = Bool("row.lid", doc="whether a row has a lid")
rate = Setting("run.rate", float, default=1.0, doc="how fast")
RULES = [
    Forbid((shape == "round") & lid.on, id="p.round.lid", because="it rolls off"),
    Ignored(rate, when=shape == "square", id="p.rate.unread", because="squares do not roll"),
    Check(
        [rate], lambda values: None if values["run.rate"] < 2 else "too fast", id="p.rate.limit", because="it breaks"
    ),
    RenameValue(shape, "circle", "round", id="p.circle", because="round is shorter"),
]
THEORY = Theory.build([shape, lid, rate], RULES)


def test_a_grid_keeps_what_resolves_in_the_order_of_the_product():
    axes = {"row.shape": ["circle", "square"], "row.lid": [True, False, UNSET], "run.rate": [0.5, 3, UNSET]}
    assert list(valid_points(THEORY, Request(), axes)) == [
        {"row.shape": "round", "row.lid": False, "run.rate": 0.5},
        {"row.shape": "round", "row.lid": False, "run.rate": UNSET},
        {"row.shape": "round", "row.lid": UNSET, "run.rate": 0.5},
        {"row.shape": "round", "row.lid": UNSET, "run.rate": UNSET},
        {"row.shape": "square", "row.lid": True, "run.rate": UNSET},
        {"row.shape": "square", "row.lid": False, "run.rate": UNSET},
        {"row.shape": "square", "row.lid": UNSET, "run.rate": UNSET},
    ]


def test_what_the_request_chose_holds_at_every_point():
    request = Request({"row.lid": Choice(True, "f"), "row.shape": Choice("round", "f")})
    assert list(valid_points(THEORY, request, {"row.shape": ["round", "square"]})) == [{"row.shape": "square"}]


def test_a_value_outside_its_menu_is_refused():
    with pytest.raises(RequestError, match="is not one of `round`, `square`"):
        list(valid_points(THEORY, Request(), {"row.shape": ["round", "flat"]}))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_grid_agrees_with_resolving_each_point(data, random_bases, outcome):
    base = data.draw(random_bases(ignoring=True))
    try:
        theory = Theory.build(base.options, base.rules)
    except RuleError:
        assume(False)
    free = [o for o in base.options if o.role == "choice"]
    assume(free)
    axes = {o.key: [*(o.values or (1, 3, 4)), UNSET] for o in free[: data.draw(st.integers(1, 3))]}
    expected = []
    for values in product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        chosen = {k: v for k, v in (base.choices | point).items() if v is not UNSET}
        found = outcome(theory, Request({k: Choice(v, "f") for k, v in chosen.items()}, base.facts))
        if isinstance(found, Resolution):
            expected.append(point)
    assert list(valid_points(theory, base.request, axes)) == expected


def test_points_at_which_everything_is_settled_are_told_apart():
    """Behind both shapes nothing is left to decide, and the lid is another."""
    rules = [
        Force(lid, True, when=shape == "round", id="p.round", because="it rolls"),
        Force(lid, False, when=shape == "square", id="p.square", because="it stands"),
    ]
    axes = {"row.shape": ["round", "square"], "row.lid": [True, False]}
    assert list(valid_points(Theory.build([shape, lid], rules), Request(), axes)) == [
        {"row.shape": "round", "row.lid": True},
        {"row.shape": "square", "row.lid": False},
    ]
