"""Resolved against effective: a difference stops the run and names the option."""

from __future__ import annotations

import pytest

from memcfg import Decision, Plan, RunError
from memcfg.engine.evidence import Effective, compare, to_dict

pytestmark = pytest.mark.torch

PLAN = Plan(
    {k: Decision(v, "default") for k, v in {"a.mode": "full", "a.on": True, "a.rate": 1.0, "a.n": None}.items()}
)


@pytest.mark.parametrize(
    ("key", "effective", "because"),
    [
        ("a.mode", "full", "equal"),
        ("a.rate", 1, "1 and 1.0 are one number"),
        ("a.n", None, "null is a value"),
        ("b.other", 3, "no plugin declares the key: nothing to compare with"),
    ],
)
def test_what_agrees_passes(key: str, effective: object, because: str) -> None:
    compare(PLAN, [Effective(key, effective, because)])


@pytest.mark.parametrize(
    ("key", "effective", "shown"),
    [
        ("a.mode", "none", "the plan says full, the run did none (2 of 28 layers)"),
        ("a.on", 1, "the plan says true, the run did 1"),
        ("a.n", 0, "the plan says null, the run did 0"),
        ("a.rate", 2.0, "the plan says 1.0, the run did 2.0"),
    ],
)
def test_what_differs_stops_the_run(key: str, effective: object, shown: str) -> None:
    with pytest.raises(RunError) as raised:
        compare(PLAN, [Effective("a.mode", "full", "fine"), Effective(key, effective, "2 of 28 layers")])
    assert [p.key for p in raised.value.problems] == [key]
    assert shown in str(raised.value)


def test_all_differences_are_told_at_once() -> None:
    with pytest.raises(RunError) as raised:
        compare(PLAN, [Effective("a.mode", "none", "x"), Effective("a.on", False, "y")])
    assert [p.key for p in raised.value.problems] == ["a.mode", "a.on"]


def test_the_file_form() -> None:
    found = [Effective("a.on", True, "seen"), Effective("a.mode", "none", "seen too")]
    assert to_dict(PLAN, found) == {
        "a.mode": {"resolved": "full", "effective": "none", "evidence": "seen too"},
        "a.on": {"resolved": True, "effective": True, "evidence": "seen"},
    }
