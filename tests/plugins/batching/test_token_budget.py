"""Micro-batches bounded by tokens: none too large, every row once, little padding, the same groups for the same order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memcfg_batching import hooks
from memcfg_batching.hooks import TokenBudget

from memcfg import DataError

pytestmark = pytest.mark.torch


def prepared(lengths: list[int], documents: list[list[int]] | None = None) -> datasets.Dataset:
    columns: dict[str, Any] = {"input_ids": [[1] * n for n in lengths]}
    return datasets.Dataset.from_dict(columns | ({"seq_lengths": documents} if documents is not None else {}))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(30, 90), st.integers(1, 8), st.booleans(),
       st.randoms(use_true_random=False))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_every_row_is_in_one_group_that_is_not_too_large(
    lengths: list[int], budget: int, multiple: int, flat: bool, random: Any
) -> None:
    order = list(range(len(lengths)))
    random.shuffle(order)
    budget = -(-budget // multiple) * multiple
    grouping = TokenBudget(budget, multiple, flat)
    groups = grouping(order, prepared(lengths))
    assert sorted(i for group in groups for i in group) == sorted(order)
    sizes = [sum(lengths[i] for i in g) if flat else len(g) * max(lengths[i] for i in g) for g in groups]
    rounded = [-(-s // multiple) * multiple if flat else s for s in sizes]
    assert max(rounded) <= budget
    assert [list(g) for g in groups] == [list(g) for g in TokenBudget(budget, multiple, flat)(order, prepared(lengths))]


def test_rounding_counts() -> None:
    assert [len(g) for g in TokenBudget(32, 16)([0, 1, 2], prepared([5, 5, 5]))] == [2, 1]


def test_rows_of_several_documents_take_a_row_for_each() -> None:
    rows = prepared([6, 6, 2], [[5, 1], [3, 3], [1, 1]])
    groups = TokenBudget(12)([0, 1, 2], rows)
    assert sorted(map(sorted, groups)) == [[0], [1, 2]]


def test_similar_lengths_come_together_and_orders_differ() -> None:
    lengths = np.random.default_rng(0).lognormal(4, 0.8, 3000).astype(int).clip(1, 400).tolist()
    rows, budget = prepared(lengths), 4000
    one, two = (np.random.default_rng(seed).permutation(len(lengths)).tolist() for seed in (1, 2))
    groups = TokenBudget(budget)(one, rows)
    real = sum(lengths)
    padded = sum(len(g) * max(lengths[i] for i in g) for g in groups)
    assert 1 - real / padded < 0.05, "a shuffled order would pad half of the positions"
    assert real / (len(groups) * budget) > 0.9
    assert groups != TokenBudget(budget)(two, rows)
    firsts = [lengths[g[0]] for g in groups[1:]]
    assert firsts != sorted(firsts, reverse=True), "groups come in no order of length"
    largest = max(len(g) * max(lengths[i] for i in g) for g in groups)
    assert len(groups[0]) * max(lengths[i] for i in groups[0]) == largest, "the largest comes first"


def test_a_row_that_fits_in_none_is_named() -> None:
    with pytest.raises(DataError, match="row 1 takes 50 positions, more than a micro-batch may have") as caught:
        TokenBudget(40)([0, 1], prepared([3, 50]))
    assert caught.value.problems[0].key == "batching.tokens"


@pytest.mark.parametrize(("largest", "mode"), [(40, "tokens"), (41, "rows")])
def test_the_budget_is_read_back_from_the_first_step(largest: int, mode: str) -> None:
    plan = {"batching.tokens": 40, "batching.mode": "tokens"}
    batches = [SimpleNamespace(input_ids=np.zeros((1, n))) for n in (7, largest)]
    for batch in batches:
        batch.input_ids = SimpleNamespace(numel=lambda n=batch.input_ids.size: n)
    run = SimpleNamespace(first=batches, grouping=TokenBudget(40))
    found = {e.key: e.effective for e in hooks.memcfg_evidence(plan, run, [])}
    assert found == {"batching.mode": mode, "batching.tokens": largest if mode == "rows" else 40}
