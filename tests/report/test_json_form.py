"""The objects of `--json`: their keys are an interface."""

import json
import math

from memcfg import UNSET, Conflict, ConflictError, Decision, Note, Plan, Problem, RequestError
from memcfg.report.jsonform import failure, success, text
from memcfg.solver.decision import Pending


def test_a_plan():
    plan = Plan(
        {
            "a.b": Decision("x", "forced", "r", "it must", ("c.d",), requested="y"),
            "c.d": Decision((1, 2.5), "default", role="setting"),
            "e.f": Decision(UNSET, "unset"),
            "g.h": Decision(None, "you", origin="command line", requested=None),
        },
        active=("core",),
        notes=(Note("note", "r", "t", {"x": 1}),),
        pending=(Pending("p.q", ("r",)),),
    )
    assert json.loads(text(success(plan))) == {
        "ok": True,
        "options": {
            "a.b": {
                "value": "x", "kind": "forced", "rule": "r", "because": "it must", "origin": None, "requested": "y",
            },
            "c.d": {"value": [1, 2.5], "kind": "default", "rule": None, "because": None, "origin": None},
            "e.f": {"value": None, "kind": "unset", "rule": None, "because": None, "origin": None},
            "g.h": {
                "value": None, "kind": "you", "rule": None, "because": None, "origin": "command line", "requested": None,
            },
        },
        "pending": [{"fact": "p.q", "rules": ["r"]}],
        "notes": [{"level": "note", "rule": "r", "text": "t"}],
        "active": ["core"],
    }  # fmt: skip


def test_a_malformed_request():
    error = RequestError(Problem("no such option", key="a.c", nearest=("a.b",)), Problem("bad", fix="write `x`"))
    assert failure(error) == {
        "ok": False,
        "errors": [
            {"key": "a.c", "text": "no such option", "nearest": ["a.b"]},
            {"key": None, "text": "bad; write `x`", "nearest": []},
        ],
        "conflicts": [],
        "repairs": [],
        "notes": [],
    }


def test_a_conflict():
    error = ConflictError([Conflict(("a", "b"), ("r",), "chain")], [("a=1",), ("b=2", "c=3")], [Note("note", "r", "t")])
    assert failure(error) == {
        "ok": False,
        "errors": [],
        "conflicts": [{"options": ["a", "b"], "rules": ["r"], "text": "chain"}],
        "repairs": [["a=1"], ["b=2", "c=3"]],
        "notes": [{"level": "note", "rule": "r", "text": "t"}],
    }


def test_infinity_is_written_as_text():
    assert json.loads(text({"a": math.inf, "b": [math.nan]})) == {"a": "inf", "b": ["nan"]}
