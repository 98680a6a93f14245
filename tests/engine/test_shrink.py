"""Memory that runs out in the middle of a step: halves, and the same result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from memcfg import RunError
from memcfg.engine.execute import train
from memcfg.engine.loader import MicroBatches
from memcfg.engine.shrink import Shrinking
from memcfg.engine.update import ALONE, counted, gradients
from memcfg.errors import OutOfMemory

pytestmark = pytest.mark.torch


def out_of_memory(*_: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def in_forward(model: Any, batch: Any) -> Any:
    """The last layer finds no room."""
    return model.model.layers[-1].register_forward_pre_hook(out_of_memory)


def in_backward(model: Any, batch: Any) -> Any:
    """The head and the last layer have their gradients, the first layer finds no room for its own."""
    return model.model.layers[0].register_full_backward_hook(out_of_memory)


def at_the_embedding(model: Any, batch: Any) -> Any:
    """All but the very last parameter have their gradients."""
    return model.model.embed_tokens.weight.register_hook(out_of_memory)


def limited(bench: Any, where: Any, rows: int) -> Any:
    """An objective whose micro-batches of more than `rows` rows do not fit."""

    class Limited(bench.Objective):  # type: ignore[name-defined, misc]
        def loss_sum(self, model: Any, batch: Any) -> torch.Tensor:
            for hook in self.hooks:
                hook.remove()
            known = batch.source is not None and model.training and torch.is_grad_enabled()
            self.hooks = [where(model, batch)] if known and len(batch.source.rows) > rows else []
            return super().loss_sum(model, batch)

        hooks: list[Any] = []

    return Limited()


def steps(bench: Any, layout: Any, objective: Any, shrinking: bool, sizes: int, tell: Any = lambda text: None) -> Any:
    """The gradients of one step of all rows in micro-batches of `sizes` rows, and its loss."""
    model = bench.model()
    objective.bind(object(), bench.Attention())
    from memcfg.engine.forward import attach_head

    attach_head(model, bench.Head())
    batches = MicroBatches(bench.rows(masked=(3,)), bench.collate, layout, sizes)
    made = list(batches.of(range(6)))
    count = counted(objective, made)
    if shrinking:
        own = Shrinking(batches.halves, "cpu", tell)
        found = own.gradients(model, made, objective, contexts=(), denominator=count, ranks=ALONE, step=7)
    else:
        own, found = None, gradients(model, made, objective, denominator=count)
    return {name: p.grad for name, p in model.named_parameters()}, found.loss, own


@pytest.mark.parametrize("layout", ["padded", "in_rows"])
@pytest.mark.parametrize("where", [in_forward, in_backward, at_the_embedding])
@pytest.mark.parametrize(("sizes", "fits"), [(6, 1), (2, 1), (3, 2), (4, 3)])
def test_the_gradients_are_those_of_a_step_that_fits(
    bench: Any, layout: str, where: Any, sizes: int, fits: int
) -> None:
    said: list[str] = []
    plain, loss, _ = steps(bench, getattr(bench, layout), bench.Objective(), False, sizes)
    halved, same, own = steps(bench, getattr(bench, layout), limited(bench, where, fits), True, sizes, said.append)
    assert float(same) == pytest.approx(float(loss), rel=1e-6)
    for name, gradient in plain.items():
        torch.testing.assert_close(halved[name], gradient, rtol=1e-5, atol=1e-7, msg=name)
    assert own.times == len(said) > 0
    assert said[0] == (
        f"out of memory in step 7: a micro-batch of {sizes} rows is taken in halves, and so are those that follow"
    )


def test_a_failure_of_a_later_micro_batch_keeps_what_was_accumulated(bench: Any) -> None:
    """It is not computed again: four rows fit at once, and the last two fail once."""
    calls: list[int] = []

    class Counting(bench.Objective):  # type: ignore[name-defined, misc]
        def loss_sum(self, model: Any, batch: Any) -> torch.Tensor:
            calls.append(len(batch.source.rows))
            if len(calls) == 3:
                out_of_memory()
            return super().loss_sum(model, batch)

    plain, *_ = steps(bench, bench.padded, bench.Objective(), False, 2)
    halved, _, own = steps(bench, bench.padded, Counting(), True, 2)
    assert calls == [2, 2, 2, 1, 1]
    assert own.parts == 2
    for name, gradient in plain.items():
        torch.testing.assert_close(halved[name], gradient, rtol=1e-5, atol=1e-7, msg=name)


def test_a_run_goes_on_in_halves_says_so_and_counts_them(bench: Any, tmp_path: Path) -> None:
    told = bench.Told()
    asked = {"run_steps": 4, "run_batch_size": 3, "run_log_steps": 1, "run_save_steps": 2}
    train(bench.plan(**asked), bench.Hooks(), tmp_path / "plain")
    hooks = bench.Hooks(objective=lambda plan: limited(bench, in_backward, 2))
    train(bench.plan(**asked, run_on_oom="shrink"), hooks, tmp_path / "run", reporter=told)
    notes = [entry[1] for entry in told.said if entry[0] == "note"]
    assert notes == [
        "out of memory in step 1: a micro-batch of 3 rows is taken in halves, and so are those that follow"
    ]
    found, plain = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("run", "plain")
    )
    assert [line["out_of_memory"] for line in found[1:]] == [1, 1, 1, 1]
    assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in plain], rel=1e-5)
    kept = json.loads((tmp_path / "run" / "checkpoint-2" / "shrinking.json").read_text())
    assert kept == {"parts": 2, "times": 1}, "a run that goes on from here takes the same halves"


def test_a_single_row_that_does_not_fit_stops_the_run(bench: Any, tmp_path: Path) -> None:
    hooks = bench.Hooks(objective=lambda plan: limited(bench, in_backward, 0))
    with pytest.raises(OutOfMemory, match="out of memory in step 1: CUDA out of memory"):
        train(bench.plan(run_on_oom="shrink"), hooks, tmp_path / "run")


def test_without_being_asked_the_run_stops(bench: Any, tmp_path: Path) -> None:
    hooks = bench.Hooks(objective=lambda plan: limited(bench, in_forward, 1))
    with pytest.raises(OutOfMemory, match="out of memory in step 1"):
        train(bench.plan(), hooks, tmp_path / "run")


def test_micro_batches_of_unknown_rows_are_refused(bench: Any) -> None:
    own = Shrinking(lambda batch: None, "cpu")
    batch = bench.padded(bench.collate(bench.rows().to_list()))
    with pytest.raises(RunError, match="not made of prepared rows"):
        own.gradients(bench.model(), [batch], bench.Objective(), contexts=(), denominator=1, ranks=ALONE, step=1)
