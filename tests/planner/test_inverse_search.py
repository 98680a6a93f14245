"""How the largest value that still fits is found, and what a ladder keeps."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from types import SimpleNamespace as Namespace
from typing import Any

import pytest

from memcfg.commands.supposed import nearest_card, supposed_card
from memcfg.planner.inverse import CLOSE, NEAR, TRIES, following
from memcfg.planner.search import ladder_of

pytestmark = pytest.mark.torch  # these modules load it

STEP, FURTHEST = 256, 1 << 20


def sought(needed: Callable[[int], float], limit: int, start: int) -> dict[int, float]:
    known = {start: needed(start)}
    while (value := following(known, limit, STEP, FURTHEST)) is not None and len(known) < TRIES:
        assert value not in known
        assert value % STEP == 0
        known[value] = needed(value)
    return known


MEMORY: dict[str, Callable[[int], float]] = {
    "a line": lambda n: 10**9 + 3 * 10**6 * n,
    "attention that holds its scores": lambda n: 10**9 + 3 * 10**5 * n + 300 * n * n,
    "steps": lambda n: 10**9 + n // 4096 * 2 * 10**9,
    "a rule that forbids more than 9,000": lambda n: inf if n > 9000 else 10**9 + 10**5 * n,
}


@pytest.mark.parametrize("limit", [2 * 10**9, 24 * 10**9, 80 * 10**9])
@pytest.mark.parametrize("start", [256, 1024, 1 << 17])
@pytest.mark.parametrize("name", MEMORY)
def test_the_largest_value_that_fits_is_found_in_few_tries(name: str, start: int, limit: int) -> None:
    known = sought(MEMORY[name], limit, start)
    found = max(value for value, needed in known.items() if needed <= limit)
    best = max(n for n in range(STEP, FURTHEST + 1, STEP) if MEMORY[name](n) <= limit)
    near = found >= best - max(STEP, best // CLOSE) - STEP
    assert near or known[found] >= NEAR * limit


def test_nothing_fits_and_everything_fits() -> None:
    assert all(needed > 10 for needed in sought(lambda n: 11, 10, 1024).values())
    assert max(sought(lambda n: 9, 10, 1024)) == FURTHEST


def rung(ms: float, needed: int, *changes: str) -> Any:
    return Namespace(set=Namespace(changes=changes), prediction=Namespace(step_ms=ms, needed_bytes=needed))


def test_a_slower_rung_is_smaller_by_what_was_simulated() -> None:
    fast, slow, small, lossy = rung(10, 100), rung(12, 99), rung(13, 50), rung(5, 40, "peft")
    assert ladder_of([lossy, slow, small, fast]) == [fast, small, lossy]


@pytest.mark.parametrize(
    ("gib", "card"), [(24, "rtx4090"), (22.35, "a10"), (16, "a10"), (40, "a100-40g"), (80, "h100"), (2000, "b200")]
)
def test_the_smallest_card_that_has_a_budget(gib: float, card: str) -> None:
    assert nearest_card(int(gib * 2**30)) == card


class Wanted(dict[str, Any]):
    device = "cpu"
    assumed: tuple[str, ...] = ()


def test_a_card_is_supposed_only_where_none_is_known() -> None:
    plan = Wanted({"budget.bytes": 32 * 2**30})
    assert supposed_card(["+budget=V100"], plan) == "v100"  # type: ignore[arg-type]
    assert supposed_card(["budget=32gib"], plan) == "rtx5090"  # type: ignore[arg-type]
    assert supposed_card([], Wanted({"budget.bytes": None})) is None  # type: ignore[arg-type]
    plan.assumed = ("device.type",)
    assert supposed_card(["budget=v100"], plan) is None  # type: ignore[arg-type]
