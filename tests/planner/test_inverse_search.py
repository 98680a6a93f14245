"""How the largest value that still fits is found, and what a ladder keeps."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from types import SimpleNamespace as Namespace
from typing import Any

import pytest

from memcfg.commands.supposed import nearest_card, supposed_card
from memcfg.planner import inverse
from memcfg.planner.inverse import CLOSE, LENGTH, NEAR, TRIES, answers, following
from memcfg.planner.prediction import Prediction
from memcfg.planner.search import ladder_of
from memcfg.planner.sets import Set

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


def of_rank(tokens: int) -> Prediction:
    """What one of several processes needs for rows of so many tokens: streams may hold 28 % besides."""
    needed = 10**9 + 10**6 * tokens
    return Prediction(
        needed, needed, needed, 0, 0, 1.0, {}, {"weights": 10**9}, "backward", unforeseen_bytes=int(0.28 * needed)
    )


def test_the_longest_length_and_the_most_rows_have_the_verdict_that_predict_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Outlines know nothing of streams; what is proven leaves room for them, as `predict` asks."""
    tokens = lambda plan: plan[LENGTH] * plan["run.batch_size"]  # noqa: E731
    monkeypatch.setattr(inverse, "predict", lambda plan, registry, machine: of_rank(tokens(plan)))
    monkeypatch.setattr(
        inverse, "outline", lambda plan, hooks, machine: Namespace(needed=of_rank(tokens(plan)).needed_bytes)
    )
    monkeypatch.setattr(inverse, "resolved", lambda request, choices, registry: choices)
    own = {LENGTH: 1024, "run.batch_size": 1}
    nothing: Any = Namespace(hooks=lambda plan: None, kind="cpu")
    found, budget = answers(nothing, nothing, nothing, 24 * 10**9, Set(own, own)), 24 * 10**9  # type: ignore[arg-type]
    assert found.longest is not None
    assert found.most_rows is not None
    assert of_rank(found.longest).verdict(budget) == of_rank(1024 * found.most_rows).verdict(budget) == "fits"
    assert of_rank(int(found.longest * 1.1)).verdict(budget) == "close"
    assert of_rank(1024 * (found.most_rows + 2)).verdict(budget) == "close"


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
