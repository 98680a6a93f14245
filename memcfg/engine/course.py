"""What happens around the steps of a run: canaries and baseline before the first, evidence after it, a line of metrics
after each that is logged, a last evaluation at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import TrainerCallback, TrainerControl, TrainerState

from memcfg import planfile
from memcfg.engine import canaries, evidence, fingerprint
from memcfg.engine.metrics import MetricsFile
from memcfg.engine.reporter import Reporter
from memcfg.engine.resuming import Start
from memcfg.engine.stopping import Stop
from memcfg.files import write_atomic

if TYPE_CHECKING:
    from memcfg.engine.trainer import EngineTrainer


class Course(TrainerCallback):
    """Conducts one run. `trainer` is set once it exists (Trainer takes its callbacks when it is made)."""

    trainer: EngineTrainer

    def __init__(self, folder: Path, reporter: Reporter, start: Start | None = None, *, main: bool = True) -> None:
        """`start`: where training begins; `main`: whether this process is the one that writes."""
        self.folder, self.reporter, self.start, self.main = folder, reporter, start or Start(), main
        self.metrics = MetricsFile(folder / "metrics.jsonl" if main else None)
        self.canaries: dict[str, str] = {}
        self._begun = False
        self.stop = Stop(reporter.note)
        self.stopped = False
        """Whether training ended before its last step because it was asked to."""
        self._first_step = 1
        self._told = 0

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer, run = self.trainer, self.trainer.run
        run.wrapped = trainer.model_wrapped
        run.first = [b.to(args.device) for b in trainer.loader.at(trainer.loader.epoch, trainer.loader.position)]
        self.reporter.stage("checking the first batch")
        with trainer.peak.between_steps():
            self.canaries = canaries.check(canaries.Subject.of(trainer))
        trainer.data = trainer.data or fingerprint.of(run.train, run.first)
        if args.should_save and (self.start.here or not (self.folder / planfile.FILE).exists()):
            planfile.save(run.plan, self.folder / planfile.FILE)
        self._begin_lines(state.global_step)
        self._first_step = state.global_step + 1
        self._begun = True
        self.reporter.begin(state.max_steps)
        trainer.meter.start()

    def _begin_lines(self, step: int) -> None:
        """The lines that there are already, or the first one."""
        point = self.start.point
        if point is not None or self.start.here:
            self.metrics.go_on(self.start.history, step)
            self.trainer.completions.go_on(step)
        if point is None:
            with self.trainer.peak.between_steps():
                self._baseline(step)

    def _baseline(self, step: int) -> None:
        """The line before any update: the loss of the first step's rows and of the held-out rows."""
        trainer, run = self.trainer, self.trainer.run
        self.reporter.stage("measuring the loss before training")
        trainer.meter.start()
        trainer.meter.add(sum(sum(b.lengths) for b in run.first))
        values = {"loss": float(trainer.mean_loss(run.first).loss)}
        values["tokens_per_second"] = trainer.meter.discard(trainer.summed)
        if run.eval is not None:
            trainer.held_out()  # what the first step's rows left there
            values["eval_loss"] = float(trainer.mean_loss_of(run.eval).loss)
            values |= trainer.held_out()
        run.objective.metrics()
        self.metrics.note(step, values)

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._close_step(state)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.global_step == self._first_step:
            self._prove()
        if state.global_step < state.max_steps and self.stop.asked(self.trainer.accelerator):
            control.should_save = control.should_training_stop = self.stopped = True
        if control.should_save:
            control.should_log = True  # no window of the metrics reaches over a checkpoint
        if state.global_step >= state.max_steps:
            control.should_log = True
            control.should_evaluate = self.trainer.run.eval is not None

    def on_log(
        self, args: Any, state: TrainerState, control: TrainerControl, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        if logs and "train_runtime" not in logs:  # Trainer's closing summary is no step's
            self.metrics.note(state.global_step, logs)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.trainer.check_loss()
        self.trainer.meter.read(self.trainer.summed)
        self.trainer.settle_account()
        self._close_step(state)

    def before_saving(self, state: TrainerState) -> None:
        """Write the step's line: a run that goes on from the checkpoint will not write it again."""
        self._close_step(state)

    def close(self) -> None:
        """Write what is still open; after an error or an interrupt too."""
        if self._begun:
            self._begun = False
            self.reporter.end()
        self.metrics.flush()

    def _close_step(self, state: TrainerState) -> None:
        line = self.metrics.flush()
        if line or state.global_step > self._told:
            self.reporter.advance(state.global_step, line)
            self._told = state.global_step

    def _prove(self) -> None:
        """Compare what the first step did with the plan. The file is written first: it says what was found."""
        run = self.trainer.run
        found = evidence.gather(run)
        if self.trainer.args.should_save:
            text = json.dumps(evidence.to_dict(run.plan, found), indent=2, default=str)
            write_atomic(self.folder / "effective.json", text + "\n")
        evidence.compare(run.plan, found)
