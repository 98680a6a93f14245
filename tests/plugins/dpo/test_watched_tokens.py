"""Entropy and mean logits of completions: on request, against whole logits, and of no weight in the loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memcfg_dpo.losses import Settings
from memcfg_dpo.objective import PreferencePairs
from memcfg_kto import objective as kto
from memcfg_kto.hooks import Collator
from memcfg_reference.references import Live

from memcfg.engine.loader import blank
from memcfg.engine.pairs import collate
from memcfg.head.looks import looks

pytestmark = pytest.mark.torch


def plain(bench: Any, model: Any, rows: Any) -> list[dict[str, Any]]:
    """Sums over the targets of each document alone, from whole logits."""
    found = []
    for row in rows:
        for ids, labels in bench.documents(row):
            at = [place for place, label in enumerate(labels[1:]) if label != -100]
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1][at]
            p, ids_after = logits.softmax(-1), torch.tensor(labels[1:])[at]
            found.append(
                {
                    "tokens": len(at),
                    "entropy": float(-(p * p.log()).sum()),
                    "logits": float(logits.mean(-1).sum()),
                    "hit": float((logits.argmax(-1) == ids_after).sum()),
                }
            )
    return found


def mean(documents: list[dict[str, Any]], name: str) -> float:
    return float(sum(d[name] for d in documents) / sum(d["tokens"] for d in documents))


@pytest.mark.parametrize("layout", ["padded", "flat"])
@pytest.mark.parametrize("kernel", ["torch", "full"])
def test_pairs_are_watched_without_another_loss(bench: Any, layout: str, kernel: str) -> None:
    policy, rows = bench.model(0, kernel=kernel), bench.rows()
    steps = {}
    for watching in (False, True):
        made = PreferencePairs(Settings(), watching=watching)
        made.bind(None, bench.attention(policy))
        made.refer(Live(bench.model(1)))
        loss = made.loss_sum(policy, bench.batch(collate(rows), layout))
        loss.backward()
        steps[watching] = (float(loss.detach()), bench.gradients(policy), made.metrics())
    assert steps[True][0] == steps[False][0]
    bench.same(steps[True][1], steps[False][1], 0.0)
    documents = plain(bench, policy, rows)
    more = {name: value for name, value in steps[True][2].items() if name not in steps[False][2]}
    assert more == pytest.approx(
        {
            "entropy": mean(documents, "entropy"),
            "mean_token_accuracy": mean(documents[::2], "hit"),
            "logits/chosen": mean(documents[::2], "logits"),
            "logits/rejected": mean(documents[1::2], "logits"),
        },
        abs=1e-5,
    )


def test_marked_completions_are_watched_too(bench: Any) -> None:
    policy, marks = bench.model(0), [True, False, True, False, False]
    rows = bench.marked(marks)
    made = kto.MarkedCompletions(kto.Settings(), watching=True)
    made.bind(None, bench.attention(policy))
    made.refer(Live(bench.model(1)))
    made.loss_sum(policy, bench.batch(Collator(True, None)(rows)))
    found, documents = made.metrics(), plain(bench, policy, rows)
    chosen = [d for d, mark in zip(documents, marks, strict=True) if mark]
    rejected = [d for d, mark in zip(documents, marks, strict=True) if not mark]
    assert found["entropy"] == pytest.approx(mean(documents, "entropy"), abs=1e-5)
    assert found["logits/chosen"] == pytest.approx(mean(chosen, "logits"), abs=1e-5)
    assert found["logits/rejected"] == pytest.approx(mean(rejected, "logits"), abs=1e-5)


def test_a_batch_without_labels_shows_nothing(bench: Any) -> None:
    policy = bench.model(0)
    made = PreferencePairs(Settings(), watching=True)
    made.bind(None, bench.attention(policy))
    made.refer(Live(bench.model(1)))
    made.loss_sum(policy, blank(bench.batch(collate(bench.rows()))))
    assert made.metrics() == {}


def test_any_chunk_shows_the_same(bench: Any) -> None:
    torch.manual_seed(0)
    model, hidden, labels = bench.model(0), torch.randn(2, 9, 16).double(), torch.randint(0, 40, (2, 9))
    labels[0, :4] = -100
    whole = looks(model, hidden, labels)
    for rows in (1, 3, 100):
        found = looks(model, hidden, labels, budget=4 * 40 * rows)
        for one, other in zip(found, whole, strict=True):
            assert torch.allclose(one, other, atol=1e-6)
    assert not whole.entropy[0, :4].any()
    assert not whole.entropy[:, 0].any()
