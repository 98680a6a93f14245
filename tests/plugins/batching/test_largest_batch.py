"""What is predicted for batches bounded by tokens: the fullest that there can be."""

from __future__ import annotations

import pytest

import memcfg
from memcfg.planner.batches import full_rows


@pytest.mark.parametrize(
    ("tokens", "length", "rows"), [(8192, 1024, [1024] * 8), (8192, 1000, [910] * 9), (600, 600, [600])]
)
def test_the_fullest_micro_batch(tokens: int, length: int, rows: list[int]) -> None:
    plan = memcfg.resolve(["batching=tokens", f"batching.tokens={tokens}", f"truncation.max_length={length}"])
    assert [sum(row) for row in full_rows(plan)] == rows


def test_the_fullest_micro_batch_of_pairs() -> None:
    """Both documents of a pair count, and no pair is taken apart."""
    plan = memcfg.resolve(["trainer=dpo", "batching=tokens", "batching.tokens=5120", "truncation.max_length=1024"])
    assert [sum(row) for row in full_rows(plan, 2)] == [853] * 6
    plan = memcfg.resolve(["trainer=dpo", "run.batch_size=3", "truncation.max_length=64"])
    assert full_rows(plan, 2) == [[64]] * 6
