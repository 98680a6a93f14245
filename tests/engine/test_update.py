"""One optimizer step does not depend on how its rows are cut into micro-batches."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from memcfg.batch import Documents
from memcfg.engine.forward import attach_head
from memcfg.engine.update import Ranks, counted, evaluating, gradients, mean_loss, step

pytestmark = pytest.mark.torch

SPLITS = [(6, 1), (1, 6), (2, 3), (3, 2)]


def prepared(bench: Any, dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
    model, objective = bench.model(dtype), bench.Objective()
    attach_head(model, bench.Head())
    objective.bind(None, bench.Attention())
    return model, objective


def micro_batches(bench: Any, rows: Any, size: int, layout: Any) -> list[Any]:
    return [
        layout(bench.collate(rows.select(range(i, min(i + size, len(rows)))).to_list()))
        for i in range(0, len(rows), size)
    ]


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def trained(bench: Any, rows: Any, size: int, layout: Any) -> tuple[float, torch.Tensor]:
    """Loss and weights after one step of plain gradient descent."""
    model, objective = prepared(bench)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    result = gradients(model, micro_batches(bench, rows, size, layout), objective)
    step(model, optimizer)
    return float(result.loss), weights(model)


@pytest.mark.parametrize("layout", ["padded", "in_rows"])
@pytest.mark.parametrize(("batch", "accumulation"), SPLITS)
def test_every_split_of_a_step_gives_the_same_loss_and_weights(
    bench: Any, batch: int, accumulation: int, layout: str
) -> None:
    rows = bench.rows()
    assert batch * accumulation == len(rows)
    loss, after = trained(bench, rows, batch, getattr(bench, layout))
    whole_loss, whole_after = trained(bench, rows, len(rows), bench.padded)
    assert loss == pytest.approx(whole_loss, abs=1e-12)
    torch.testing.assert_close(after, whole_after, rtol=0, atol=1e-12)


def test_the_loss_is_the_mean_over_all_targets_of_the_lone_documents(bench: Any) -> None:
    rows = bench.rows()
    model, objective = prepared(bench)
    lone = 0.0
    for row in rows:
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1]
        lone += float(
            torch.nn.functional.cross_entropy(logits, labels[1:], ignore_index=-100, reduction="sum").detach()
        )
    targets = sum(n - 2 for n in bench.LENGTHS)
    result = gradients(model, micro_batches(bench, rows, 2, bench.in_rows), objective)
    assert result.count == targets == 28
    assert float(result.loss) == pytest.approx(lone / targets, abs=1e-12)


def test_a_micro_batch_without_a_target_changes_nothing(bench: Any) -> None:
    rows = bench.rows(masked=(2, 3))
    loss, after = trained(bench, rows.select([0, 1, 2, 3]), 2, bench.padded)
    lone_loss, lone_after = trained(bench, rows.select([0, 1]), 2, bench.padded)
    assert loss == pytest.approx(lone_loss, abs=1e-12)
    torch.testing.assert_close(after, lone_after, rtol=0, atol=1e-12)


def test_a_step_without_any_target_has_zero_loss_and_zero_finite_gradients(bench: Any) -> None:
    model, objective = prepared(bench)
    rows = bench.rows(masked=range(6))
    result = gradients(model, micro_batches(bench, rows, 3, bench.padded), objective)
    assert result.count == 0
    assert float(result.loss) == 0.0
    assert all(bool((p.grad == 0).all()) for p in model.parameters() if p.grad is not None)


def test_a_count_may_be_a_tensor(bench: Any) -> None:
    model, objective = prepared(bench)
    number = gradients(model, micro_batches(bench, bench.rows(), 2, bench.padded), objective).loss
    plain = objective.count
    objective.count = lambda batch: torch.tensor(plain(batch))
    batches = micro_batches(bench, bench.rows(), 2, bench.padded)
    assert counted(objective, batches) == 28
    assert type(counted(objective, batches)) is int, "a tensor on the CPU is read without waiting"
    torch.testing.assert_close(gradients(model, batches, objective, denominator=torch.tensor(28)).loss, number)


def test_a_given_denominator_is_what_the_sum_is_divided_by(bench: Any) -> None:
    model, objective = prepared(bench)
    batches = micro_batches(bench, bench.rows(), 6, bench.padded)
    whole = gradients(model, batches, objective).loss
    torch.testing.assert_close(gradients(model, batches, objective, denominator=56).loss, whole / 2)


def test_a_step_of_no_micro_batch_is_refused(bench: Any) -> None:
    model, objective = prepared(bench)
    with pytest.raises(ValueError, match="at least one micro-batch"):
        gradients(model, [], objective)
    with pytest.raises(ValueError, match="at least one micro-batch"):
        mean_loss(model, [], objective)


def test_two_ranks_that_average_their_gradients_take_the_step_of_one(bench: Any) -> None:
    rows = bench.rows()
    whole, objective = prepared(bench)
    whole_loss = gradients(whole, micro_batches(bench, rows, 2, bench.padded), objective).loss
    shares = [rows.select([0, 1]), rows.select([2, 3, 4, 5])]
    losses, grads = [], []
    for share in shares:
        model, objective = prepared(bench)
        ranks = Ranks(size=2, total=lambda count: 28)
        losses.append(gradients(model, micro_batches(bench, share, 2, bench.padded), objective, ranks=ranks).loss)
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    expected = torch.cat([p.grad.flatten() for p in whole.parameters() if p.grad is not None])
    torch.testing.assert_close(sum(losses) / 2, whole_loss, rtol=0, atol=1e-12)
    torch.testing.assert_close(sum(grads) / 2, expected, rtol=0, atol=1e-12)


def test_gradients_are_synchronised_at_the_last_micro_batch_only(bench: Any) -> None:
    model, objective = prepared(bench)
    seen: list[bool] = []

    @contextmanager
    def accumulate(model: Any, last: bool) -> Any:
        seen.append(last)
        yield

    gradients(model, micro_batches(bench, bench.rows(), 2, bench.padded), objective, ranks=Ranks(accumulate=accumulate))
    assert seen == [False, False, True]


def test_contexts_are_entered_around_forward_and_backward_of_every_micro_batch(bench: Any) -> None:
    model, objective = prepared(bench)
    events: list[str] = []

    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            events.append(f"{self.name} in")

        def __exit__(self, *_: Any) -> None:
            events.append(f"{self.name} out")

    model.lm_head.weight.register_hook(lambda gradient: events.append("backward"))
    batches = micro_batches(bench, bench.rows(), 3, bench.padded)
    gradients(model, batches, objective, contexts=[Noted("a"), Noted("b")])
    assert events == ["a in", "b in", "backward", "b out", "a out"] * 2


def test_step_clips_updates_and_clears(bench: Any) -> None:
    model, objective = prepared(bench)
    batches = micro_batches(bench, bench.rows(), 6, bench.padded)
    before = weights(model)
    gradients(model, batches, objective)
    length = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    norm = step(model, torch.optim.SGD(model.parameters(), lr=1.0), max_grad_norm=0.1)
    torch.testing.assert_close(norm, length)
    assert float((weights(model) - before).norm()) == pytest.approx(0.1, rel=1e-4)
    assert all(p.grad is None for p in model.parameters())


def test_step_without_a_limit_measures_the_norm_and_clips_nothing(bench: Any) -> None:
    model, objective = prepared(bench)
    before = weights(model)
    gradients(model, micro_batches(bench, bench.rows(), 6, bench.padded), objective)
    norm = step(model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert float((weights(model) - before).norm()) == pytest.approx(float(norm), rel=1e-9)


def test_mean_loss_is_the_training_loss_without_gradients_in_eval_mode(bench: Any) -> None:
    model, objective = prepared(bench)
    batches = micro_batches(bench, bench.rows(), 2, bench.in_rows)
    trained_loss = gradients(copy.deepcopy(model), batches, objective).loss
    modes: list[bool] = []
    model.lm_head.register_forward_hook(lambda *_: modes.append(model.training))
    result = mean_loss(model, batches, objective)
    torch.testing.assert_close(result.loss, trained_loss, rtol=0, atol=1e-12)
    assert result.count == 28
    assert modes == [False] * 3
    assert model.training, "the model is left in the mode it was in"
    assert all(p.grad is None for p in model.parameters())
    assert not result.loss.requires_grad


def test_documents_in_a_row_are_what_the_padded_rows_are(bench: Any) -> None:
    """The bench itself: its packed layout must not let documents see each other."""
    documents = Documents(
        [torch.tensor([5, 6, 7]), torch.tensor([8, 9])], [torch.tensor([5, 6, 7]), torch.tensor([8, 9])], [[0], [1]]
    )
    batch = bench.in_rows(documents)
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1]]
    assert batch.labels.tolist() == [[-100, 6, 7, -100, 9]]


def test_a_wrapper_that_hands_the_mode_on_has_it_too() -> None:
    """DeepSpeed's engine does not set its own; objectives ask the model that they are given whether it trains."""

    class Engine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = torch.nn.Linear(1, 1)

        def train(self, mode: bool = True) -> Engine:
            self.module.train(mode)
            return self

    engine = Engine()
    with evaluating(engine):
        assert (engine.training, engine.module.training) == (False, False)
    assert (engine.training, engine.module.training) == (True, True)
