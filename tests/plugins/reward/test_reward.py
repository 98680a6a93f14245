"""Reward models: the loss against its formula, the reward read at the last real token, and what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from memcfg_peft.hooks import memcfg_export as merge
from memcfg_peft.hooks import memcfg_patch_model as adapted
from memcfg_reward.hooks import collate, memcfg_export, memcfg_prepare_dataset, memcfg_step_context
from memcfg_reward.objective import RankedPairs
from memcfg_reward.scalar import classifier, left_on_meta, with_scalar_head
from transformers import AutoModelForSequenceClassification

from memcfg import DataError, Decision, Plan, RunError
from memcfg.engine.dropout import rates
from memcfg.engine.loader import blank

pytestmark = pytest.mark.torch

CENTER = 0.1


def scored(bench: Any, rows: Any, *, margins: bool = False) -> list[dict[str, Any]]:
    """The rows as the reward trainer prepares them: the last token of each document is its target."""
    found = []
    for place, row in enumerate(rows):
        labels = [label for ids, _ in bench.documents(row) for label in [-100] * (len(ids) - 1) + ids[-1:]]
        found.append(row | {"labels": labels} | ({"margin": 0.5 * place} if margins else {}))
    return found


def model(bench: Any, seed: int = 0) -> Any:
    return with_scalar_head(bench.model(seed), seed)


def objective(bench: Any, made: Any, center: float | None = None) -> RankedPairs:
    found = RankedPairs(center)
    found.bind(None, bench.attention(made))
    return found


def alone(bench: Any, made: Any, row: Any) -> list[Any]:
    """The reward of each document by itself."""
    return [
        made.lm_head(made.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0, -1]).squeeze()
        for ids, _ in bench.documents(row)
    ]


@pytest.mark.parametrize("layout", ["padded", "rows", "flat"])
@pytest.mark.parametrize("margins", [False, True])
@pytest.mark.parametrize("center", [None, CENTER])
def test_loss_and_gradients_are_those_of_the_formula(bench: Any, layout: str, margins: bool, center: Any) -> None:
    made, rows = model(bench), scored(bench, bench.rows(), margins=margins)
    expected = 0.0
    for row in rows:
        better, worse = alone(bench, made, row)
        expected = expected - torch.log(torch.sigmoid(better - worse - (row["margin"] if margins else 0.0)))
        if center is not None:
            expected = expected + center * (better + worse) ** 2
    expected.backward()
    wanted = bench.gradients(made)
    found = objective(bench, made, center).loss_sum(made, bench.batch(collate(rows), layout))
    found.backward()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    bench.same(bench.gradients(made), wanted)


def test_the_last_real_token_is_read_though_padding_has_its_id(bench: Any) -> None:
    """Every document ends with token 0, which is also what the batch is padded with, and has a 0 in its middle."""
    made = model(bench)
    documents = [[5, 6, 0], [7, 0, 8, 9, 10, 0], [11, 0], [12, 0, 0, 0]]
    rows = [
        {
            "input_ids": a + b,
            "labels": [-100] * (len(a) - 1) + a[-1:] + [-100] * (len(b) - 1) + b[-1:],
            "seq_lengths": [len(a), len(b)],
        }
        for a, b in (documents[:2], documents[2:])
    ]
    wanted = torch.stack([reward for row in rows for reward in alone(bench, made, row)])
    for layout in ("padded", "rows", "flat"):
        found = objective(bench, made).rewards(made, bench.batch(collate(rows), layout))
        assert torch.allclose(found, wanted, atol=1e-12), layout


def test_a_batch_without_labels_counts_nothing(bench: Any) -> None:
    made = model(bench)
    goal, batch = objective(bench, made, CENTER), bench.batch(collate(scored(bench, bench.rows())))
    assert (int(goal.count(batch)), int(goal.count(blank(batch)))) == (4, 0)
    loss = goal.loss_sum(made, blank(batch))
    assert float(loss.detach()) == 0.0
    loss.backward()
    assert goal.metrics() == {}


def test_a_pair_without_a_margin_takes_none_from_the_others(bench: Any) -> None:
    rows = [row | {"margin": margin} for row, margin in zip(bench.rows(), (0.5, None, 2.0, None), strict=True)]
    assert collate(rows).fields["margin"].tolist() == [0.5, 0.5, 0.0, 0.0, 2.0, 2.0, 0.0, 0.0]


def test_a_margin_that_is_no_number_is_refused() -> None:
    rows = datasets.Dataset.from_dict({"chosen": ["a b"], "rejected": ["a c"], "margin": ["big"]})
    with pytest.raises(DataError) as caught:
        memcfg_prepare_dataset(None, rows, None, None, "train")
    assert str(caught.value) == '`margin`: row 1 holds "big": each must be a number, or null'


def test_metrics_are_those_of_the_rewards(bench: Any) -> None:
    made, rows = model(bench), scored(bench, bench.rows())
    goal = objective(bench, made)
    goal.loss_sum(made, bench.batch(collate(rows)))
    found = dict(goal.metrics())
    sides = [[float(r.detach()) for r in alone(bench, made, row)] for row in rows]
    assert found["rewards/accuracies"] == pytest.approx(sum(y > z for y, z in sides) / 4)
    assert found["rewards/margins"] == pytest.approx(sum(y - z for y, z in sides) / 4)


def test_what_is_saved_gives_the_same_rewards(bench: Any, tmp_path: Path) -> None:
    made, row = model(bench), scored(bench, bench.rows())[0]
    wanted = [float(reward) for reward in alone(bench, made, row)]
    saved = classifier(made)
    assert left_on_meta(saved) == []
    saved.save_pretrained(tmp_path)
    loaded: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype="float64")
    assert loaded.config.num_labels == 1
    found = [float(loaded(input_ids=torch.tensor([ids])).logits) for ids, _ in bench.documents(row)]
    assert found == pytest.approx(wanted, rel=1e-9)


def test_an_adapter_trains_the_new_head_and_is_merged(bench: Any, tmp_path: Path) -> None:
    values = {
        "peft.method": "lora", "peft.rank": 2, "peft.alpha": 4, "peft.dropout": 0.1, "peft.targets": ["q_proj"],
        "peft.head": False, "peft.modules_to_save": None, "peft.rslora": False, "peft.dora": False, "peft.dtype": "base",
        "peft.config": {}, "peft.merge": True, "run.seed": 0, "reward.disable_dropout": True,
    }  # fmt: skip
    plan = Plan({key: Decision(value, "default") for key, value in values.items()})
    made: Any = adapted(plan, model(bench))
    assert any(p.requires_grad and p.shape == (1, 16) for p in made.parameters())
    assert memcfg_step_context(plan, made, []) == []
    assert rates(made) == []
    rows = scored(bench, bench.rows())
    optimizer = torch.optim.SGD([p for p in made.parameters() if p.requires_grad], lr=0.1)
    goal = objective(bench, made.get_base_model())
    for _ in range(2):
        goal.loss_sum(made, bench.batch(collate(rows))).backward()
        optimizer.step()
    wanted = goal.rewards(made, bench.batch(collate(rows))).tolist()
    saved: Any = memcfg_export(plan, merge(plan, made))
    saved.save_pretrained(tmp_path)
    loaded: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype="float64")
    found = [float(loaded(input_ids=torch.tensor([ids])).logits) for row in rows for ids, _ in bench.documents(row)]
    assert found == pytest.approx(wanted, rel=1e-9)


def test_an_architecture_without_a_classifier_is_refused(bench: Any) -> None:
    made = bench.model()
    made.config.model_type = "of_another_kind"
    with pytest.raises(RunError, match="no sequence classifier for models of type `of_another_kind`"):
        with_scalar_head(made, 0)
