"""Prove a plan without training it: everything is built, the first step's gradients are computed, the canaries and the
evidence are looked at, and the model is thrown away before anything moves it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import set_seed
from transformers.trainer_callback import TrainerCallback, TrainerControl, TrainerState

from memcfg.engine import canaries, evidence, memory
from memcfg.engine.build import build
from memcfg.engine.execute import no_bars, refuse
from memcfg.engine.joining import join
from memcfg.engine.reporter import Reporter, Silent
from memcfg.engine.same import same_start
from memcfg.engine.trainer import EngineTrainer

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry.hooks import Hooks


@dataclass(frozen=True)
class Checked:
    """What was seen: `canaries` by name, `effective` as in `effective.json`, the first step's loss and the peak of building
    the model and computing its gradients (no optimizer state is in it)."""

    canaries: Mapping[str, str]
    effective: Mapping[str, Mapping[str, Any]]
    loss: float
    peak_bytes: int
    seconds: float
    ledger: Mapping[str, Any] = field(default_factory=dict)


class _Enough(Exception):
    """Ends Trainer's loop once the gradients are there."""


class _Proof(TrainerCallback):
    trainer: EngineTrainer

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.canaries: dict[str, str] = {}
        self.found: list[evidence.Effective] = []

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer, run = self.trainer, self.trainer.run
        run.wrapped = trainer.model_wrapped
        run.first = [b.to(args.device) for b in trainer.loader.at(0, 0)]
        self.reporter.stage("checking the first batch")
        self.canaries = canaries.check(canaries.Subject.of(trainer))
        self.reporter.stage("computing the first step's gradients")

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.found = evidence.gather(self.trainer.run)
        raise _Enough


def check(plan: Plan, hooks: Hooks, *, reporter: Reporter | None = None) -> Checked:
    """Look at the first step of a plan. Raises what training would raise until then, and leaves nothing behind."""
    begin = time.perf_counter()
    reporter = reporter or Silent()
    refuse(plan)
    group = join(plan, hooks)
    with tempfile.TemporaryDirectory(prefix="memcfg-check-") as folder, no_bars():
        set_seed(plan["run.seed"])
        reporter.stage("preparing the data and the model")
        run = build(plan, hooks)
        same_start(run, group)
        memory.reset_peak(run.device)
        proof = _Proof(reporter)
        proof.trainer = trainer = EngineTrainer(run, Path(folder), callbacks=[proof])
        with suppress(_Enough):
            trainer.train()
        assert trainer.step_loss is not None
        loss = float(trainer.step_loss)
    evidence.compare(plan, proof.found)
    return Checked(
        canaries=proof.canaries, effective=evidence.to_dict(plan, proof.found), loss=loss,
        peak_bytes=memory.measured(run.device)["peak_bytes"], seconds=time.perf_counter() - begin,
        ledger=run.ledger.to_dict(),
    )  # fmt: skip
