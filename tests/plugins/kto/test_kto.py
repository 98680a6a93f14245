"""KTO: the loss against its formula, mismatched completions in the batches that the loader really makes, marks."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
import torch
from memcfg_kto.hooks import ALONE, Collator, _check_marks, _compare, _without_single
from memcfg_kto.mismatched import divided, mismatched
from memcfg_kto.objective import MarkedCompletions, Settings
from memcfg_reference.references import Live

from memcfg import DataError, Decision, Plan
from memcfg.engine.ledger import Ledger
from memcfg.engine.loader import MicroBatches, blank

pytestmark = pytest.mark.torch

MARKS = [True, False, False, True, True]
BETA, GOOD, BAD = 0.3, 1.5, 0.7


def objective(bench: Any, model: Any, frozen: Any, loss: str = "kto") -> MarkedCompletions:
    made = MarkedCompletions(Settings(loss, BETA, GOOD, BAD))
    made.bind(None, bench.attention(model))
    made.refer(Live(frozen))
    return made


@pytest.mark.parametrize("loss", ["kto", "apo_zero_unpaired"])
@pytest.mark.parametrize("layout", ["padded", "rows", "flat"])
def test_loss_and_gradients_are_those_of_the_formula(bench: Any, loss: str, layout: str) -> None:
    model, frozen, rows = bench.model(1), bench.model(0), bench.marked(MARKS)

    def ratio(row: Any) -> Any:
        with torch.no_grad():
            known = bench.token_logps(frozen, row["input_ids"], row["labels"])[0].sum()
        return bench.token_logps(model, row["input_ids"], row["labels"])[0].sum() - known

    origin = torch.zeros(())
    if loss == "kto":
        with torch.no_grad():
            origin = torch.stack([ratio(row) for row in mismatched(rows, None)]).mean().clamp(min=0)
    expected = 0.0
    for row in rows:
        r = ratio(row)
        z = BETA * (r - origin) if row["label"] else BETA * (origin - r)
        expected = expected + (GOOD if row["label"] else BAD) * (1 - torch.sigmoid(z))
    expected.backward()
    wanted = bench.gradients(model)
    batch = bench.batch(Collator(loss == "kto", None)(rows), layout)
    assert (batch.aside is not None) == (loss == "kto")
    found = objective(bench, model, frozen, loss).loss_sum(model, batch)
    found.backward()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    bench.same(bench.gradients(model), wanted)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("count", [4, 5, 7, 9])
def test_no_row_is_paired_with_its_own_completion(bench: Any, size: int, count: int) -> None:
    """In the batches that the loader yields, shuffled and with a short last one: each completion is used once, never its own."""
    kept = _without_single(datasets.Dataset.from_list(bench.marked([True] * count)), size, Ledger())
    order = torch.randperm(len(kept), generator=torch.Generator().manual_seed(count)).tolist()
    loader = MicroBatches(kept, Collator(True, None), bench.batch, size)
    for start in range(0, len(kept), size):
        rows = [kept[i] for i in order[start : start + size]]
        documents = loader.collator(rows)
        assert documents.aside is not None, "no row is left alone"
        own = [divided(row) for row in rows]
        others = [
            (ids[:n].tolist(), ids[n:].tolist())
            for ids, n in zip(documents.aside.input_ids, (len(prompt) for prompt, _ in own), strict=True)
        ]
        assert [prompt for prompt, _ in others] == [prompt for prompt, _ in own]
        assert sorted(c for _, c in others) == sorted(c for _, c in own), "each completion once"
        assert all(one != other for (_, one), (_, other) in zip(own, others, strict=True))


def test_the_row_that_would_be_alone_is_dropped_and_counted(bench: Any) -> None:
    ledger, rows = Ledger(), datasets.Dataset.from_list(bench.marked([True] * 5))
    tokens = sum(len(ids) for ids in rows["input_ids"][:])
    ledger.add(rows_in=5, tokens_in=tokens, tokens_kept=tokens)
    assert len(_without_single(rows, 2, ledger)) == 4
    assert (dict(ledger.reasons), ledger.balance) == ({ALONE: 1}, 0)
    assert len(_without_single(rows, 3, Ledger())) == 5


def test_completions_of_the_same_prompt_keep_apart() -> None:
    row = lambda prompt, completion: {"input_ids": [prompt, completion], "labels": [-100, completion]}  # noqa: E731
    rows = [row(1, 10), row(1, 11), row(2, 20), row(2, 21)]
    assert [r["input_ids"] for r in mismatched(rows, None)] == [[1, 20], [1, 21], [2, 10], [2, 11]]
    assert mismatched(rows[:1], None) == []


def test_a_batch_of_one_row_takes_the_divergence_to_be_zero(bench: Any) -> None:
    model, frozen, rows = bench.model(1), bench.model(0), bench.marked([True])
    batch = bench.batch(Collator(True, None)(rows))
    assert batch.aside is None
    found = objective(bench, model, frozen, "kto").loss_sum(model, batch)
    assert float(found.detach()) == pytest.approx(
        float(objective(bench, model, frozen, "apo_zero_unpaired").loss_sum(model, batch).detach())
    )


def test_a_batch_without_labels_counts_nothing(bench: Any) -> None:
    model = bench.model(1)
    made = objective(bench, model, bench.model(0))
    batch = bench.batch(Collator(True, None)(bench.marked(MARKS)))
    assert (int(made.count(batch)), int(made.count(blank(batch)))) == (5, 0)
    loss = made.loss_sum(model, blank(batch))
    assert float(loss.detach()) == 0.0
    loss.backward()
    assert made.metrics() == {}


def test_metrics_tell_the_marks_apart(bench: Any) -> None:
    model = bench.model(1)
    made = objective(bench, model, bench.model(0))
    made.loss_sum(model, bench.batch(Collator(True, None)(bench.marked(MARKS))))
    found = dict(made.metrics())
    assert {
        "rewards/chosen",
        "rewards/rejected",
        "rewards/margins",
        "rewards/accuracies",
        "logps/chosen",
        "kl",
    } <= found.keys()
    assert found["rewards/margins"] == pytest.approx(found["rewards/chosen"] - found["rewards/rejected"])


def test_marks_of_a_wrong_type_are_refused() -> None:
    for wrong, shown in (["good", "bad"], '"good"'), ([1, 0], "1"), ([None, [True]], "[true]"):  # type: ignore[misc]
        with pytest.raises(DataError) as caught:
            _check_marks(datasets.Dataset.from_dict({"label": wrong}))
        row = 2 if wrong[0] is None else 1
        assert str(caught.value) == f"`label`: row {row} holds {shown}: each must be true (desirable) or false"
    with pytest.raises(DataError, match="some rows have no mark"):
        _check_marks(datasets.Dataset.from_dict({"label": [True, None]}))
    _check_marks(datasets.Dataset.from_dict({"label": [True, False]}))


def test_rows_that_are_all_marked_alike_are_refused() -> None:
    import numpy as np

    plan = Plan({f"kto.{side}_weight": Decision(1.0, "default") for side in ("desirable", "undesirable")})
    with pytest.raises(DataError, match="none of the 2 training rows is undesirable"):
        _compare(plan, np.array([True, True]), Ledger())
    balanced, lopsided = Ledger(), Ledger()
    _compare(plan, np.array([True, False]), balanced)
    _compare(plan, np.array([True] * 9 + [False]), lopsided)
    assert balanced.notes == []
    assert "`kto.desirable_weight=0.11` would balance them" in lopsided.notes[0]
