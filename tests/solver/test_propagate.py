"""Propagation and search: the first model in the caller's order, or causes that contradict each other."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memcfg.solver.propagate import Budget, Entangled, Propagation, Unsatisfiable, contradiction


def clause(*literals, tag=None):
    return literals, frozenset([tag] if tag else [])


def first_model(sizes, clauses, order, preference):
    """By looking at every assignment, best first."""
    for values in product(*(preference[v] for v in order)):
        x = dict(zip(order, values, strict=True))
        if all(any(1 << x[v] & mask for v, mask in literals) for literals, _ in clauses):
            return [1 << x[v] for v in range(len(sizes))]
    return None


@st.composite
def problems(draw):
    sizes = [draw(st.integers(2, 4)) for _ in range(draw(st.integers(2, 5)))]
    variables = range(len(sizes))
    clauses = []
    for at in range(draw(st.integers(1, 26))):
        among = dict.fromkeys(draw(st.integers(0, len(sizes) - 1)) for _ in range(draw(st.integers(1, 3))))
        clauses.append(clause(*((v, draw(st.integers(1, (1 << sizes[v]) - 2))) for v in among), tag=at + 1))
    seed = random.Random(draw(st.integers(0, 999)))
    order = seed.sample(variables, len(sizes))
    return sizes, clauses, order, [seed.sample(range(n), n) for n in sizes]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(problems())
def test_the_first_model_in_the_order_asked_for(problem):
    sizes, clauses, order, preference = problem
    expected = first_model(sizes, clauses, order, preference)
    search = Propagation([(1 << n) - 1 for n in sizes], clauses)
    try:
        found = search.search(order, lambda v, dom: [1 << i for i in preference[v]])
    except Unsatisfiable as error:
        assert expected is None
        within = [c for c in clauses if c[1] <= error.tags]
        assert first_model(sizes, within, order, preference) is None
    else:
        assert found == expected


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_a_copy_leaves_its_original_as_it_was(problem):
    sizes, clauses, order, preference = problem
    full = [(1 << n) - 1 for n in sizes]
    prepared = Propagation(full, clauses)
    expected = first_model(sizes, clauses[1:], order, preference)
    for _ in range(2):
        state = prepared.copy()
        state.drop(0)
        try:
            found = state.search(order, lambda v, dom: [1 << i for i in preference[v]])
        except Unsatisfiable:
            found = None
        assert found == expected


def test_clauses_over_new_variables_can_be_added_and_others_exchanged():
    state = Propagation([0b11, 0b11], [clause((0, 0b01), (1, 0b01), tag="a")]).copy()
    state.widen([0b11])
    state.swap(0, [(0, 0b10), (1, 0b10)])
    state.add([(0, 0b01)], frozenset("b"))
    state.add([(1, 0b01), (2, 0b10)], frozenset("c"))
    assert state.search([0, 1, 2], lambda v, dom: [0b01]) == [0b01, 0b10, 0b10]


def test_causes_leave_out_what_took_no_part():
    clauses = [
        clause((0, 0b01), tag="a"), clause((0, 0b10), (1, 0b01), tag="b"), clause((1, 0b10), tag="c"),
        clause((2, 0b01), tag="d"), clause((2, 0b10), (3, 0b01), tag="e"),
    ]  # fmt: skip
    assert contradiction(clauses, [0b11] * 4) == frozenset("abc")
    assert contradiction(clauses[:2], [0b11] * 4) is None


@pytest.mark.parametrize("clauses", [[clause(tag="a")], [clause((0, 0b01), tag="a"), clause((0, 0b10), tag="a")]])
def test_clauses_of_one_literal_or_none_can_contradict(clauses):
    assert contradiction(clauses, [0b11]) == frozenset("a")


def test_a_budget_is_shared_and_names_what_was_met_most():
    pigeons, holes = 7, 6
    at_home = [clause((p, (1 << holes) - 1), tag="home") for p in range(pigeons)]
    alone = [
        clause((p, ~(1 << h) & 0b111111), (q, ~(1 << h) & 0b111111), tag="alone")
        for p in range(pigeons) for q in range(p) for h in range(holes)
    ]  # fmt: skip
    full = [(1 << holes) - 1] * pigeons
    budget = Budget(3)
    with pytest.raises(Entangled) as raised:
        contradiction([*at_home, *alone], full, budget)
    assert raised.value.tags[0] == "alone"
    with pytest.raises(Entangled):
        contradiction([*at_home, *alone], full, budget)
    assert contradiction([*at_home, *alone], full, Budget(5000)) == frozenset({"alone"})
