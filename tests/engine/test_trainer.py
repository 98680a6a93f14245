"""Transformers' Trainer adds nothing to a step, takes nothing away, and moves no row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import TrainerCallback

from memcfg.core import SCHEDULERS
from memcfg.engine.build import build
from memcfg.engine.trainer import EngineTrainer, arguments
from memcfg.engine.update import counted, gradients, mean_loss, step

pytestmark = pytest.mark.torch

READ, ADD = ("aten._local_scalar_dense.default", ((),)), ("aten.add_.Tensor", ((), ()))
BOOKKEEPING = {"cpu": [READ, ADD], "cuda": [ADD]}
"""What Trainer's way does besides: the loss is added to what will be logged, and read to see that it is finite (on a GPU
that of the step before, which here was read when it was logged)."""


class Operations(TorchDispatchMode):
    """Every ATen operation that reaches the dispatcher, with the shapes of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "aten":  # not the profiler's marks
            tensors = (x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor))
            self.seen.append((str(func), tuple(tuple(x.shape) for x in tensors)))
        return func(*args, **(kwargs or {}))


class Recorder(TrainerCallback):
    """Records the operations of one step of Trainer's loop."""

    def __init__(self, at: int) -> None:
        self.at, self.operations = at, Operations()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.at:
            self.operations.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.at + 1:
            self.operations.__exit__(None, None, None)


def trainer(bench: Any, folder: Path, hooks: Any = None, callbacks: Sequence[Any] = (), **plan: Any) -> EngineTrainer:
    made = bench.plan(**plan)
    return EngineTrainer(build(made, hooks or bench.Hooks()), folder, callbacks)


@pytest.mark.parametrize("limit", [1.0, None])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_trainer_does_the_operations_of_gradients_and_step(
    bench: Any, tmp_path: Path, accumulation: int, limit: float | None
) -> None:
    recorder = Recorder(at=1)
    asked = {"run_accumulation": accumulation, "run_max_grad_norm": limit, "run_steps": 2}
    by_trainer = trainer(bench, tmp_path, callbacks=[recorder], **asked)
    by_trainer.shapes.add = lambda micro_batches: None  # the account of lengths looks at what lies on the host
    by_trainer.train()

    direct = trainer(bench, tmp_path, **asked)
    run, steps = direct.run, iter(direct.loader)
    for operations in (Operations(), Operations()):
        micro_batches = next(steps)
        with operations:
            count = counted(run.objective, micro_batches)
            placed = [batch.to(bench.DEVICE) for batch in micro_batches]
            gradients(run.model.train(), placed, run.objective, denominator=count)
            step(run.model, run.optimizer, max_grad_norm=limit)

    assert without(recorder.operations.seen, operations.seen) == BOOKKEEPING[bench.DEVICE]
    assert len(operations.seen) > 300
    for name, parameter in by_trainer.run.model.named_parameters():
        assert torch.equal(parameter, run.model.get_parameter(name)), name


def without(longer: list[Any], shorter: list[Any]) -> list[Any]:
    """What `longer` has between the entries of `shorter`, which it must hold in order."""
    rest, position = [], 0
    for entry in longer:
        if position < len(shorter) and entry == shorter[position]:
            position += 1
        else:
            rest.append(entry)
    assert position == len(shorter), f"missing from the longer: {shorter[position:][:5]}"
    return rest


def test_rows_come_in_the_loaders_order_and_no_other(bench: Any, tmp_path: Path) -> None:
    seen: list[list[int]] = []
    hooks = bench.Hooks()
    made = trainer(bench, tmp_path, hooks, run_steps=7)
    plain = made.run.objective.loss_sum
    made.run.objective.loss_sum = lambda model, batch: (
        seen.append(batch.input_ids[:, 0].tolist()),
        plain(model, batch),
    )[1]
    made.train()
    expected = [b.input_ids[:, 0].tolist() for s in islice(trainer(bench, tmp_path, run_steps=7).loader, 7) for b in s]
    assert seen == expected
    assert made.state.global_step == 7


def test_the_logged_gradient_norm_is_that_of_the_gradients(bench: Any, tmp_path: Path) -> None:
    made = trainer(bench, tmp_path, run_steps=1, run_max_grad_norm=0.01)
    made.train()
    direct = trainer(bench, tmp_path, run_steps=1)
    placed = [batch.to(bench.DEVICE) for batch in next(iter(direct.loader))]
    gradients(direct.run.model, placed, direct.run.objective)
    norm = step(direct.run.model, direct.run.optimizer)
    logged = next(line["grad_norm"] for line in made.state.log_history if "grad_norm" in line)
    assert logged == pytest.approx(float(norm), rel=1e-6)
    assert logged > 0.01


def test_evaluate_is_the_mean_over_all_held_out_targets(bench: Any, tmp_path: Path) -> None:
    held_out = bench.rows((4, 9, 6, 5, 8), seed=5)
    made = trainer(bench, tmp_path, bench.Hooks(held_out=held_out), run_batch_size=2)
    before = {name: p.clone() for name, p in made.run.model.named_parameters()}
    found = made.evaluate()["eval_loss"]
    whole = made.run.layout(bench.collate(held_out.to_list())).to(bench.DEVICE)
    assert found == pytest.approx(float(mean_loss(made.run.model, [whole], made.run.objective).loss), rel=1e-6)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in made.run.model.named_parameters())


def test_evaluate_builds_no_logits_that_the_head_does_not(bench: Any, tmp_path: Path) -> None:
    class OneByOne(bench.Head):  # type: ignore[name-defined, misc]
        def loss_sum(self, model: Any, hidden: torch.Tensor, labels: torch.Tensor, loss: Any) -> torch.Tensor:
            total = hidden.sum() * 0
            for at, label in zip(hidden[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), strict=True):
                if label != -100:
                    total = total - model.lm_head(at).log_softmax(-1)[label]
            return total

    hooks = bench.Hooks(held_out=bench.rows(), head=lambda plan, model: OneByOne())
    made, plain = trainer(bench, tmp_path, hooks), trainer(bench, tmp_path, bench.Hooks(held_out=bench.rows()))
    with Operations() as operations:
        loss = made.evaluate()["eval_loss"]
    vocabulary = made.run.model.config.vocab_size
    logits = [
        shape for _, shapes in operations.seen for shape in shapes if shape[-1:] == (vocabulary,) and len(shape) == 3
    ]
    assert not logits
    assert loss == pytest.approx(plain.evaluate()["eval_loss"], rel=1e-5)


def test_one_process_never_splits_a_batch_over_devices(bench: Any, tmp_path: Path) -> None:
    assert arguments(bench.plan(), tmp_path).n_gpu <= 1


def test_the_objectives_own_metrics_are_logged(bench: Any, tmp_path: Path) -> None:
    made = trainer(bench, tmp_path, run_steps=1)
    made.run.objective.metrics = lambda: {"margin": 0.5}
    made.train()
    assert made.state.log_history[0]["margin"] == 0.5


def test_steps_without_a_target_do_not_lower_the_logged_loss(bench: Any, tmp_path: Path) -> None:
    rows = bench.rows((8, 8, 8, 8), masked=(0, 1))
    made = trainer(
        bench, tmp_path, bench.Hooks(rows), run_steps=4, run_batch_size=1, run_log_steps=4, run_learning_rate=0.0
    )
    losses = [float(made.mean_loss(made.loader.at(0, i)).loss) for i in range(4)]
    made.args.logging_first_step = False
    made.train()
    counted = [loss for loss in losses if loss]
    assert len(counted) == 2
    assert made.state.log_history[0]["loss"] == pytest.approx(sum(counted) / 2, rel=1e-5)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_that_can_be_chosen_runs(bench: Any, tmp_path: Path, name: str) -> None:
    made = trainer(bench, tmp_path, run_scheduler=name, run_warmup_steps=1, run_steps=3, run_log_steps=1)
    made.train()
    rates = [line["learning_rate"] for line in made.state.log_history if "loss" in line]
    assert len(rates) == 3
    assert max(rates) == pytest.approx(1e-2, rel=0.5)
