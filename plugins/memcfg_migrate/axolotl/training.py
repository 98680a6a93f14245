"""How long an axolotl run is, what moves its weights, and how often it is logged, evaluated and saved."""

from __future__ import annotations

import math

from memcfg_migrate import hf
from memcfg_migrate.becomes import carry
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Said
from memcfg_migrate.schedule import Length, Steps, carry_steps, fraction, steps


def carry_length(said: Said, out: Outcome, length: Length) -> Steps:
    accumulation = said["gradient_accumulation_steps"] or 1
    if said["batch_size"] is not None:
        accumulation = max(said["batch_size"] // (max(said["micro_batch_size"], 1) * length.processes), 1)
        out.carry("run.accumulation", accumulation, f"{said.text('batch_size')} over {length.processes} process(es)")
    else:
        carry(said, "gradient_accumulation_steps", out, "run.accumulation", accumulation)
    if (rate := said["learning_rate"]) is None:
        out.remark("open", "the learning rate", "axolotl asks for one: append `run.learning_rate=...`")
    else:
        out.carry("run.learning_rate", rate, said.text("learning_rate"))
    most = said["max_steps"] or -1
    found = steps(said["num_epochs"], most, said["micro_batch_size"], accumulation, length)
    carry_steps(found, said, "num_epochs", "max_steps", length, out)
    _warmup(said, out, found)
    return found


def _warmup(said: Said, out: Outcome, found: Steps) -> None:
    """Axolotl warms up for 3 % of the steps, at most 100, unless told otherwise, and never for one step."""
    count, share = said["warmup_steps"], said["warmup_ratio"]
    name = "warmup_steps" if count is not None else "warmup_ratio"
    if count is not None and share is not None:
        out.remark("there", said.text("warmup_ratio"), "refused beside `warmup_steps`")
    if not hf.warms_up(said, name, said["lr_scheduler"], out):
        return
    if count is None and found.total is not None:
        count = int(share * found.total) if share is not None else min(int(0.03 * found.total), 100)
    if count is None:
        out.remark(
            "open", said.text(name), "a share of all steps, whose number is not known: append `run.warmup_steps=N`"
        )
        return
    out.carry("run.warmup_steps", 2 if count == 1 else int(count), said.text(name), given=name in said)


def carry_optimizer(said: Said, out: Outcome) -> None:
    name = said["optimizer"]
    found = hf.OPTIMIZERS.get(name)
    if found is None:
        out.remark("learning", said.text("optimizer"), "there is no such optimizer here: see `optimizer.name`")
    else:
        carry(said, "optimizer", out, "optimizer.name", found)
    one, two, eps = said["adam_beta1"], said["adam_beta2"], said["adam_epsilon"]
    if one is not None or two is not None:
        text = ", ".join(said.text(n) for n in ("adam_beta1", "adam_beta2") if n in said)
        out.carry("optimizer.betas", [0.9 if one is None else one, 0.999 if two is None else two], text)
    if eps is not None:
        out.carry("optimizer.eps", eps, said.text("adam_epsilon"))
    ratio = said["cosine_min_lr_ratio"]
    if ratio == 0.1 and said["lr_scheduler"] == "cosine":
        out.carry("run.scheduler", "cosine_with_min_lr", said.text("cosine_min_lr_ratio"))
    elif ratio is not None:
        out.remark("learning", said.text("cosine_min_lr_ratio"), "`run.scheduler=cosine_with_min_lr` ends at a tenth")


def carry_trackers(said: Said, out: Outcome) -> None:
    """A project of Weights & Biases is enough to turn it on, as in axolotl."""
    by = {"use_wandb": "wandb", "wandb_project": "wandb", "use_tensorboard": "tensorboard", "use_trackio": "trackio"}
    given = [name for name in by if said[name]]
    if given:
        out.carry("run.report_to", list(dict.fromkeys(by[n] for n in given)), ", ".join(map(said.text, given)))
    if said["wandb_project"]:
        out.remark("other", said.text("wandb_project"), "the environment variable `WANDB_PROJECT` names it")
    for name in by:
        if name in said and name not in given:
            out.remark("same", said.text(name), "nothing goes there unasked")


def carry_times(said: Said, out: Outcome, found: Steps) -> None:
    if said["logging_steps"] is not None:
        out.carry("run.log_steps", said["logging_steps"], said.text("logging_steps"))
    elif found.total is not None:
        text = f"{said.text('logging_steps')}: one in 200 of {found.total} steps"
        out.carry("run.log_steps", max(min(int(0.005 * found.total), 10), 1), text, given=False)
    evaluates = bool(said["val_set_size"]) or said["test_datasets"] is not None
    older = "evaluation_strategy" if said["evaluation_strategy"] is not None else "eval_strategy"
    if evaluates:
        _every(said, out, found, ("eval_steps", "evals_per_epoch", older), "run.eval_steps")
    else:
        for name in ("eval_steps", "evals_per_epoch", "eval_strategy", "evaluation_strategy"):
            if name in said:
                out.remark("there", said.text(name), "refused or not read: no rows are held out")
    _every(said, out, found, ("save_steps", "saves_per_epoch", "save_strategy"), "run.save_steps")


def _every(said: Said, out: Outcome, found: Steps, names: tuple[str, str, str], key: str) -> None:
    """A number of steps, so many times an epoch, or once in each, which is what axolotl does by itself."""
    count, times, kind = names
    often, strategy = said[times], said[kind]
    fallback = key == "run.save_steps" or strategy == "epoch"
    if strategy not in (None, "no", "epoch", "steps"):
        out.remark("learning", said.text(kind), f"`{key}` is a number of steps")
    elif strategy == "no":
        out.carry(key, None, said.text(kind))
    elif strategy is not None:
        said.text(kind)
        out.remark("same", said.text(kind), f"`{key}` says it")
    if said[count] is not None:
        value = fraction(said[count], found.total)
        name = count
    elif often is not None or (strategy != "no" and fallback):
        value = None if found.epoch is None else max(math.ceil(found.epoch / (often or 1)), 1)
        name = times
    else:
        return
    if value is None:
        out.remark("open", said.text(name), f"the steps of an epoch are not known: append `{key}=N`")
    else:
        out.carry(key, value, said.text(name), given=name in said)
