"""The one subclass of `transformers.Trainer`.

Trainer is used for what it is good at: placing and wrapping the model (DDP, FSDP2, DeepSpeed), schedulers, clipping,
checkpoints and callbacks. It is kept from four things: accumulating (a "batch" is a whole optimizer step, its own
accumulation is 1), ordering rows (the loader does), computing a loss (`update.gradients` does) and moving rows through
its evaluation loop (`update.mean_loss` does)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from memcfg import planfile
from memcfg.batch import Evaluated, Steered
from memcfg.engine import canaries, checkpoint, fingerprint, kept, means, notfinite, resuming, tracking
from memcfg.engine.build import Run
from memcfg.engine.checkpoint import Checkpoint
from memcfg.engine.joining import Group
from memcfg.engine.loader import Loader, MicroBatches, loader_of
from memcfg.engine.memory import Peak
from memcfg.engine.metrics import Meter
from memcfg.engine.ranks import ranks_of
from memcfg.engine.renewed import renewed_loader
from memcfg.engine.rollouts import Place, RolloutLoader
from memcfg.engine.saving import PARTIAL, whole
from memcfg.engine.shapes import Shapes
from memcfg.engine.shown import CompletionsFile
from memcfg.engine.shrink import Shrinking
from memcfg.engine.update import StepResult, counted, gradients, mean_loss
from memcfg.errors import Problem, RunError
from memcfg.plan import Plan
from memcfg.rollouts import Sampling

SCHEDULERS: Final[Mapping[str, dict[str, Any]]] = {"cosine_with_min_lr": {"min_lr_rate": 0.1}}
"""Arguments of schedulers that have to be told something: the lowest learning rate, as a share of the peak."""


class Arguments(TrainingArguments):
    """Trainer's arguments, of which trackers are told the plan that they were made from."""

    plan: Plan | None = None

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() if self.plan is None else tracking.configuration(self.plan)


def arguments(plan: Plan, folder: Path, **further: Any) -> TrainingArguments:
    """What Trainer is told. Loading, logging, evaluating and saving are the engine's; Trainer only says when. `further`
    is what a strategy adds."""
    every = {name: plan.get(f"run.{name}") for name in ("eval_steps", "save_steps")}
    args = Arguments(
        output_dir=str(folder),
        run_name=folder.name,
        max_steps=plan["run.steps"],
        per_device_train_batch_size=plan["run.batch_size"],
        gradient_accumulation_steps=1,
        learning_rate=plan["run.learning_rate"],
        lr_scheduler_type=plan["run.scheduler"],
        lr_scheduler_kwargs=SCHEDULERS.get(plan["run.scheduler"]),
        warmup_steps=plan["run.warmup_steps"],
        max_grad_norm=plan.get("run.max_grad_norm") or 0.0,
        seed=plan["run.seed"],
        logging_strategy="steps",
        logging_first_step=True,
        logging_steps=plan["run.log_steps"],
        logging_nan_inf_filter=False,
        eval_strategy="steps" if every["eval_steps"] else "no",
        eval_steps=every["eval_steps"],
        save_strategy="steps" if every["save_steps"] else "no",
        save_steps=every["save_steps"] or 500,
        ignore_data_skip=True,  # the loader goes to its place by itself
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        use_cpu=further.pop("use_cpu", plan.device == "cpu"),
        **further,
    )
    args.plan = plan
    if args.n_gpu > 1:
        args._n_gpu = 1  # one process drives one GPU; Trainer would wrap the model in DataParallel
    return args


def shared_names(model: torch.nn.Module) -> set[str]:
    """Names under which a parameter appears again that has another name already: a tied head's, for one."""
    first: dict[int, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    return {name for name, parameter in named if first.setdefault(id(parameter), name) != name}


class EngineTrainer(Trainer):
    """Trains a `Run`: `training_step` takes a list of micro-batches and calls `gradients`; Trainer clips and steps."""

    def __init__(self, run: Run, folder: Path, callbacks: Iterable[Any] = ()) -> None:
        self.run, self.folder = run, folder
        self.meter = Meter()
        self.shapes = Shapes()
        self.peak = Peak(run.device)
        self.step_loss: torch.Tensor | None = None
        self._seen = self._padded = 0
        self.before_saving: Callable[[Any], Any] = lambda state: None
        """Called with Trainer's state before a checkpoint is written, to finish what belongs to its step."""
        self.saved_at: int | None = None
        """The step of the newest checkpoint."""
        self.tell: Callable[[str], Any] = lambda text: None
        self._unread: tuple[int, StepResult, Sequence[Any]] | None = None
        self.held = canaries.held(run.optimizer, run.model)
        self._use_cache = getattr(getattr(run.model, "config", None), "use_cache", None)
        further = {} if run.spread is None else run.spread.arguments(run.model)
        super().__init__(
            model=run.model, args=arguments(run.plan, folder, **further), eval_dataset=run.eval,
            processing_class=run.tokenizer,
        )  # fmt: skip
        for unwanted in (PrinterCallback, ProgressCallback):
            self.remove_callback(unwanted)
        for callback in callbacks:
            self.add_callback(callback)
        self.ranks = ranks_of(self.accelerator)
        self.group = Group(self.accelerator.process_index, self.accelerator.num_processes)
        means.over(self.group)
        batches = self.micro_batches(run.train)
        self.rollouts = RolloutLoader(run, batches, self._place()) if isinstance(run.objective, Sampling) else None
        renews = run.generation is not None and self.rollouts is None
        given = renewed_loader(run, batches, self._place()) if renews else None
        self.loader = self.rollouts or given or loader_of(run, batches)
        self.shrinking: Shrinking | None = None
        if run.plan.get("run.on_oom") == "shrink":
            self.shrinking = Shrinking(batches.halves, self.args.device, lambda text: self.tell(text))
            run.kept["shrinking"] = self.shrinking
        self.completions = CompletionsFile(folder / "completions.jsonl" if self.group.main else None)
        self.data: dict[str, Any] | None = None
        """What the training rows are, for checkpoints; known once training begins."""
        run.kept = {"loader": self.loader, "ledger": run.ledger, "shapes": self.shapes, **_with_state(run), **run.kept}

    def micro_batches(self, rows: Any) -> MicroBatches:
        """Rows as this rank's micro-batches."""
        run, accelerator = self.run, self.accelerator
        if run.collator is None:
            raise ValueError("a run that was built without data cannot be trained")
        batch_size = run.plan["run.batch_size"]
        return MicroBatches(
            rows,
            run.collator,
            run.layout,
            batch_size,
            accelerator.process_index,
            accelerator.num_processes,
            run.grouping,
        )

    def go_on_from(self, point: Checkpoint) -> None:
        """Train from a checkpoint. Raises `RunError` where its rows are not this run's."""
        first = self.loader.at(0, 0) if not hasattr(self.run.train, "__len__") else []
        resuming.refuse_other_rows(point.data, fingerprint.of(self.run.train, first))
        self.data = dict(point.data)
        missing = kept.load(self.run.kept, point.path, self.args.process_index)
        if missing:
            raise RunError(Problem(f"`{point.path}` holds no state of the {missing[0]}", key=resuming.KEY))
        self.train(resume_from_checkpoint=str(point.path))

    def _place(self) -> Place:
        accelerator = self.accelerator
        return Place(
            lambda: self.model_wrapped, lambda: self.optimizer, self.args.device, accelerator.process_index,
            accelerator.num_processes, lambda values: accelerator.gather(values.to(accelerator.device)).to(values),
        )  # fmt: skip

    # ------------------------------------------------------------------------------------ what Trainer asks for

    def get_train_dataloader(self) -> Loader:  # type: ignore[override]
        return self.loader

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            self.optimizer = self.run.optimizer
        return self.optimizer

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # an estimate from padded sizes, which nothing here reads

    def _init_training_state(self, max_steps: int, *rest: Any) -> Any:
        """As Trainer does; but how often to log, evaluate and save is what this run says, not the checkpoint."""
        found = super()._init_training_state(max_steps, *rest)
        self.state.compute_steps(self.args, max_steps)
        return found

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """As Trainer does; from a checkpoint of the last step there is nothing left to do."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def training_step(self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """One step's gradients and its mean loss. `inputs` is a list of micro-batches."""
        model.train()
        objective = self.run.objective
        count = self.ranks.total(counted(objective, inputs))
        about: dict[str, Any] = {"contexts": self.run.contexts, "denominator": count, "ranks": self.ranks}
        if self.shrinking is None:
            result = gradients(model, [batch.to(self.args.device) for batch in inputs], objective, **about)
        else:
            result = self.shrinking.gradients(model, inputs, objective, step=self.state.global_step + 1, **about)
        self._account(inputs, count)
        if isinstance(objective, Steered):
            objective.stepped()
        self.step_loss = result.loss
        self._watch(result, inputs)
        return result.loss

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:  # type: ignore[override]
        """The held-out loss, by the same objective and head as training. Logged, and told to the callbacks."""
        self.meter.stop()
        with self.peak.between_steps():
            loss = float(self.mean_loss_of(self.run.eval).loss)
        metrics = {f"{metric_key_prefix}_loss": loss} | self.held_out(f"{metric_key_prefix}_")
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self.meter.start()
        return metrics

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As Trainer does, with the true epoch, the throughput and what the objective has to say."""
        self.state.epoch = self.loader.epochs()
        if "loss" in logs:
            self.check_loss()
            logs["loss"] *= self.meter.share_counted()
            logs["tokens_per_second"] = self.meter.read(self.summed)
            self.settle_account()
            if self.shrinking is not None and self.shrinking.times:
                logs["out_of_memory"] = self.shrinking.times
            logs.update(self.run.objective.metrics())
            if self.rollouts is not None:
                logs.update(self.rollouts.figures.read())
                self.completions.note(self.state.global_step, self.rollouts.records)
        super().log(logs, start_time)

    # ------------------------------------------------------------------------------------------------ evaluation

    def mean_loss_of(self, rows: Any) -> StepResult:
        """The mean loss over all these rows, in order."""
        given = self.micro_batches(rows).of(range(len(rows))) if self.rollouts is None else self.rollouts.held_out(rows)
        return self.mean_loss(given)

    def held_out(self, prefix: str = "eval_") -> dict[str, float]:
        """What the objective has to say of the rows that were just evaluated."""
        objective = self.run.objective
        found = dict(objective.held_out()) if isinstance(objective, Evaluated) else {}
        if self.rollouts is not None:
            found |= self.rollouts.held_out_figures.read(self.group)
        return {prefix + name: value for name, value in found.items()}

    def mean_loss(self, batches: Iterable[Any]) -> StepResult:
        """The mean loss over micro-batches, on the prepared model, averaged over ranks."""
        placed = (batch.to(self.args.device) for batch in batches)
        result = mean_loss(self.model_wrapped, placed, self.run.objective, contexts=self.run.contexts, ranks=self.ranks)
        if self.ranks.size > 1:
            return StepResult(self.accelerator.reduce(result.loss, "mean"), result.count)
        return result

    # ------------------------------------------------------------------------------------------------ saving

    def save_final(self, target: Path) -> None:
        """The trained model with its tokenizer, as `from_pretrained` reads it. Whole or not at all.

        Trainer switched the cache off for training; whoever generates with the model wants it as it was."""
        if self._use_cache is not None:
            self.run.model.config.use_cache = self._use_cache  # type: ignore[union-attr, assignment]
        with whole(target, main=self.args.should_save) as partial:
            exported = self.run.hooks.export(plan=self.run.plan, model=self.run.model)
            if exported is self.run.model:
                self.save_model(str(partial), _internal_call=True)
            elif self.args.should_save:
                exported.save_pretrained(str(partial))
                self.processing_class.save_pretrained(str(partial))  # type: ignore[union-attr]
            (partial / "training_args.bin").unlink(missing_ok=True)  # a pickle of paths; the plan says it all

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """As Trainer does; a tensor that two modules share is written once, also where gathering made two of it."""
        if state_dict is not None:
            state_dict = {name: value for name, value in state_dict.items() if name not in shared_names(self.run.model)}
        super()._save(output_dir, state_dict)

    def _get_output_dir(self, trial: Any) -> str:
        """While a checkpoint is written: a folder that no reader takes for one."""
        return str(self.folder / PARTIAL)

    def save_here(self) -> None:
        """A checkpoint after the last step that was taken, if there is none."""
        if self.saved_at != self.state.global_step:
            self._save_checkpoint(self.model_wrapped, None)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """A checkpoint, whole or not at all, with everything that a run goes on with. Older ones go once it is whole."""
        self.check_loss()
        step, main = self.state.global_step, self.args.should_save
        self.before_saving(self.state)
        self.meter.stop()
        with self.peak.between_steps(), whole(self.folder / f"{checkpoint.PREFIX}{step}", main=main) as partial:
            super()._save_checkpoint(model, trial)
            kept.save(self.run.kept, partial, self.args.process_index)
            self.accelerator.wait_for_everyone()
            if main:
                (partial / "training_args.bin").unlink(missing_ok=True)  # a pickle that nothing reads
                planfile.save(self.run.plan, partial / planfile.FILE)
                self.data = self.data or fingerprint.of(self.run.train, self.run.first)
                checkpoint.seal(partial, step, self.data)
        if main and (keep := self.run.plan.get("run.keep_checkpoints")):
            checkpoint.prune(self.folder, keep)
        self.saved_at = step
        self.meter.start()

    # ------------------------------------------------------------------------------------------------ watching

    def _account(self, micro_batches: Sequence[Any], count: Any) -> None:
        """Tokens, padding and shapes of a step, for the throughput, the ledger and the report."""
        tokens = sum(sum(b.lengths) for b in micro_batches)
        positions = sum(b.input_ids.numel() for b in micro_batches)
        self.meter.add(tokens, empty=isinstance(count, int) and count == 0)
        self.shapes.add(micro_batches)
        self._seen, self._padded = self._seen + tokens, self._padded + positions - tokens
        if self.group.size == 1:
            self.settle_account()

    def settle_account(self) -> None:
        """Put the tokens of all processes since the last time into the ledger. All of them must call it."""
        self.run.ledger.add(tokens_seen=self.summed(self._seen), tokens_padded=self.summed(self._padded))
        self._seen = self._padded = 0

    def summed(self, number: int) -> int:
        """A number summed over all processes. All of them must call it."""
        return int(self.ranks.total(number))

    def _watch(self, result: StepResult, inputs: Sequence[Any]) -> None:
        """Stop at a loss that is not finite. On a GPU the loss of the step before is looked at, which costs no waiting."""
        if self.run.device == "cuda":
            self.check_loss()
        self._unread = (self.state.global_step + 1, result, inputs)
        if self.run.device != "cuda":
            self.check_loss()

    def check_loss(self) -> None:
        """Raises `RunError` if the last step's loss is not finite."""
        if self._unread is not None and not math.isfinite(float(self._unread[1].loss)):
            raise notfinite.error(*self._unread, self.folder, self.run.tokenizer)
        self._unread = None


def _with_state(run: Run) -> dict[str, Any]:
    """The parts of a run that have a state of their own."""
    parts = {"objective": run.objective, "reference": run.reference}
    return {name: part for name, part in parts.items() if isinstance(part, kept.Stateful)}
