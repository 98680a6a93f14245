"""A micro-batch that a run had is made again from the lengths of its documents, by every trainer's own rows and layout."""

from __future__ import annotations

import pytest

import memcfg
from memcfg.registry import Registry

pytestmark = pytest.mark.torch

APART = [[5], [9], [7], [12]]
MICRO_BATCHES = {
    "rows": ([], APART),
    "packed rows": (["packing=bfd", "truncation.max_length=32"], [[5, 9, 7], [12, 1]]),
    "pairs": (["trainer=dpo"], APART),
    "pairs without padding": (["trainer=dpo", "padding_free=on"], APART),
    "scored pairs": (["trainer=reward"], APART),
    "scored pairs without padding": (["trainer=reward", "padding_free=on"], APART),
    "marked completions": (["trainer=kto", "kto.loss=apo_zero_unpaired"], APART),
}


@pytest.mark.parametrize("name", MICRO_BATCHES)
def test_the_lengths_of_a_micro_batch_make_it_again(name: str, registry: Registry) -> None:
    from memcfg.engine.build import build
    from memcfg.engine.memory import rows_of
    from memcfg.planner.batches import micro_batches

    overrides, documents = MICRO_BATCHES[name]
    plan = memcfg.resolve(overrides)
    hooks = registry.hooks(plan)
    run = build(plan, hooks, data=False)
    stand_ins = hooks.simulation(plan=plan, stands_in={})
    (had,) = micro_batches(plan, hooks, run.tokenizer, run.layout, stand_ins, documents)
    assert sorted(n for row in rows_of(had) for n in row) == sorted(n for row in documents for n in row)
    (again,) = micro_batches(plan, hooks, run.tokenizer, run.layout, stand_ins, rows_of(had))
    assert (again.input_ids.shape, rows_of(again)) == (had.input_ids.shape, rows_of(had))


@pytest.mark.parametrize("trainer", ["dpo", "reward"])
def test_pairs_as_long_as_they_may_be_are_what_is_predicted_by_default(trainer: str, registry: Registry) -> None:
    from memcfg.planner.simulate import simulate

    plan = memcfg.resolve([f"trainer={trainer}", "run.batch_size=3", "truncation.max_length=40"])
    by_default = simulate(plan, registry.hooks(plan))
    as_it_was = simulate(plan, registry.hooks(plan), lengths=[[40]] * 6)
    assert as_it_was.allocated_bytes == by_default.allocated_bytes
    assert simulate(plan, registry.hooks(plan), lengths=[[40]] * 4).allocated_bytes < by_default.allocated_bytes
