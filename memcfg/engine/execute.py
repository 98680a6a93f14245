"""Train a plan: build it, prove it, train it, and leave a run folder that says what happened.

    run folder   resolved.yaml    the plan
                 effective.json   resolved and effective value of every option with evidence
                 ledger.json      tokens and rows: read, kept, cut, dropped, padded, supervised
                 metrics.jsonl    one line for each logged step
                 batches.json     lengths of documents and fill of rows that were trained on
                 memory.json      measured peak, and the predicted one
                 checkpoint-N/    every `run.save_steps` steps
                 model/           the final model with its tokenizer

Before the first step nothing is left behind by a failure; later, what was measured so far stays."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import set_seed
from transformers.utils import logging

from memcfg.engine import memory, resuming, tracking
from memcfg.engine.build import Run, build
from memcfg.engine.checkpoint import PREFIX, Checkpoint
from memcfg.engine.course import Course
from memcfg.engine.exhausted import explained
from memcfg.engine.joining import Group, join, relying
from memcfg.engine.reporter import Reporter, Silent
from memcfg.engine.same import same_start
from memcfg.engine.saving import run_folder
from memcfg.engine.trainer import EngineTrainer
from memcfg.errors import Away, Problem, RunError
from memcfg.files import write_atomic

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry.hooks import Hooks


@dataclass(frozen=True)
class Report:
    """How a run went. `eval_loss_*` are None without held-out rows; `loss_first` is the loss before any update;
    `tokens_per_second` counts real tokens over training steps alone; `peak_bytes` is explained in `memory.json`."""

    run_dir: str
    model_dir: str
    steps: int
    seconds: float
    loss_first: float
    loss_last: float
    eval_loss_first: float | None
    eval_loss_last: float | None
    tokens_per_second: float
    peak_bytes: int
    ledger: dict[str, Any]
    canaries: dict[str, str] = field(default_factory=dict)
    reward_first: float | None = None
    """Of a trainer that samples: the mean reward of the first tenth of the logged steps, and of the last."""
    reward_last: float | None = None
    completions: list[dict[str, Any]] = field(default_factory=list)
    """Some that were sampled last."""
    step_bytes: int | None = None
    """On a GPU: the peak of the steps alone, without evaluations and checkpoints; `predicted_bytes`: what it was predicted to be."""
    predicted_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


Lengths = list[list[int]]
"""The documents of each row of a micro-batch, by their lengths; of a trainer that samples prompt and completion of each
completion that was sampled at a time."""

Expected = Mapping[str, Any]

Predicted = Callable[[Lengths], Expected | None]
"""Given the largest micro-batch of a run: what was to be expected of its memory (`peak_bytes`, `reserved_bytes`)."""


def train(
    plan: Plan, hooks: Hooks, run_dir: str | Path, *, reporter: Reporter | None = None,
    predicted: Predicted = lambda lengths: None, group: Group | None = None,
) -> Report:  # fmt: skip
    """Train the plan in `run_dir` (made if need be). `predicted` is asked once, after training on a GPU. `group`: the
    processes of the run, where they have met already.

    With `run.resume` it goes on from a checkpoint (see `memcfg.engine.resuming`). Raises `DataError` for unusable data,
    `PluginError` for a value without implementation, `RunError` for a folder that cannot be written, a failed canary, a
    technique that did not happen or a loss that is not finite, `OutOfMemory` where the device has too little. SIGINT and SIGTERM end it after the step, which is saved (see
    `memcfg.engine.stopping`); `KeyboardInterrupt` passes through once what was measured so far is written."""
    begin = time.perf_counter()
    reporter = reporter or Silent()
    folder = Path(run_dir)
    refuse(plan)
    group = group or join(plan, hooks)
    with relying(group), run_folder(folder, used=resuming.in_place(plan, folder), main=group.main), no_bars():
        start = resuming.start(plan, folder, reporter.note, group)
        set_seed(plan["run.seed"])
        reporter.stage("preparing the data and the model")
        with explained(plan.device, lambda: "while the model was prepared"):
            run = build(plan, hooks)
        same_start(run, group)
        memory.reset_peak(run.device)
        course = Course(folder, reporter, start, main=group.main)
        trainer, expected = _trained(run, course, folder, predicted)
        reporter.stage("saving the model")
        trainer.save_final(folder / "model")
    return _report(run, course, trainer, folder, time.perf_counter() - begin, expected)


@contextmanager
def no_bars() -> Iterator[None]:
    """Transformers' own progress bars (a model of two files makes one) off: the reporter says what goes on."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def refuse(plan: Plan) -> None:
    """What cannot be trained, before anything is touched."""
    if plan.assumed:
        names = ", ".join(f"`{name}`" for name in plan.assumed)
        raise RunError(Problem(f"assumed facts are for planning only, and {names} are assumed", key="assume"))
    tracking.refuse_missing(plan)
    if plan.device == "cuda" and not torch.cuda.is_available():
        raise RunError(Problem("the plan was made for a CUDA device, and torch sees none here", key="device.type"))


def _trained(run: Run, course: Course, folder: Path, predicted: Predicted) -> tuple[EngineTrainer, Expected | None]:
    """The trainer after training, and what was to be expected of its memory. The account is written however training ends, if it got as far as the first line."""
    largest = memory.Largest(run.layout)
    run.layout = largest
    begun = course.start.point.step if course.start.point else 0
    trackers = tracking.callbacks(run.plan, folder, begun) if course.main else []
    trainer = EngineTrainer(run, folder, callbacks=[course, *trackers])
    run.layout = largest.layout  # the trainer's rows go through the one that looks; held-out rows need not
    course.trainer = trainer
    trainer.before_saving, trainer.tell = course.before_saving, course.reporter.note
    if trainer.rollouts is not None:
        trainer.rollouts.say = course.reporter.note
    try:
        with course.stop.heeding():
            _run(trainer, largest, course.start.point)
    except BaseException as error:
        with suppress(RunError):  # the disk may be why we are here; that error is the one to tell
            if isinstance(error, Away):
                _save_for_later(trainer, course, folder, together=error.everywhere)
            course.close()
            if course.metrics.lines and trainer.group.main:
                _account(run, trainer, folder)
        raise
    finally:
        if run.generation is not None:
            run.generation.close()
    course.close()
    if course.stopped:
        if trainer.group.main:
            _account(run, trainer, folder)
        _goes_on(trainer, course, folder)
        course.stop.hand_on()
    expected = predicted(_lengths(trainer, largest)) if run.device == "cuda" and trainer.group.main else None
    if trainer.group.main:
        _account(run, trainer, folder, expected)
    return trainer, expected


def _save_for_later(trainer: EngineTrainer, course: Course, folder: Path, *, together: bool) -> None:
    """What a run has learned so far, where it ends between two steps. One of several processes cannot save alone."""
    if trainer.state.global_step and (together or trainer.accelerator.num_processes == 1):
        trainer.save_here()
        _goes_on(trainer, course, folder)


def _goes_on(trainer: EngineTrainer, course: Course, folder: Path) -> None:
    where = f"{folder / PREFIX}{trainer.state.global_step}"
    course.reporter.note(f"saved `{where}`: `run.dir={folder} run.resume=auto` goes on from it")


def _run(trainer: EngineTrainer, largest: memory.Largest, point: Checkpoint | None) -> None:
    """Train, from a checkpoint if there is one. Raises `OutOfMemory` in place of torch's own error."""
    when = lambda: f"in step {trainer.state.global_step + 1}"  # noqa: E731
    with (
        explained(trainer.run.device, when, lambda: _lengths(trainer, largest)),
        relying(trainer.group),
        _sampling_ends(trainer.run),
    ):
        trainer.train() if point is None else trainer.go_on_from(point)


@contextmanager
def _sampling_ends(run: Run) -> Iterator[None]:
    """What samples is closed, however training ends."""
    try:
        yield
    finally:
        if run.generation is not None:
            run.generation.close()


def _lengths(trainer: EngineTrainer, largest: memory.Largest) -> Lengths:
    """What the most memory was needed for: of a run that samples the most completions at a time, else a micro-batch."""
    return largest.lengths if trainer.rollouts is None else trainer.rollouts.largest.lengths


def _account(run: Run, trainer: EngineTrainer, folder: Path, predicted: Expected | None = None) -> None:
    """`ledger.json`, `batches.json` and `memory.json`."""
    ledger = run.ledger.to_dict() | {"eval": run.eval_ledger.to_dict() if run.eval is not None else None}
    write_atomic(folder / "ledger.json", json.dumps(ledger, indent=2) + "\n")
    write_atomic(folder / "batches.json", json.dumps(trainer.shapes.to_dict()) + "\n")
    text = json.dumps({"measured": trainer.peak.measured(), "predicted": predicted}, indent=2)
    write_atomic(folder / "memory.json", text + "\n")


def _report(
    run: Run, course: Course, trainer: EngineTrainer, folder: Path, seconds: float, expected: Expected | None
) -> Report:  # fmt: skip
    metrics, used = course.metrics, trainer.peak.measured()
    return Report(
        run_dir=str(folder), model_dir=str(folder / "model"), steps=trainer.state.global_step, seconds=seconds,
        loss_first=metrics.first("loss"), loss_last=metrics.last("loss"),
        eval_loss_first=metrics.first("eval_loss"), eval_loss_last=metrics.last("eval_loss"),
        tokens_per_second=trainer.meter.rate(), peak_bytes=used["peak_bytes"],
        ledger=run.ledger.to_dict(), canaries=course.canaries, completions=trainer.completions.latest,
        reward_first=metrics.tenth("reward", first=True), reward_last=metrics.tenth("reward", first=False),
        step_bytes=used.get("step_bytes"), predicted_bytes=(expected or {}).get("peak_bytes"),
    )  # fmt: skip
