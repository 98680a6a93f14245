"""The arguments of Transformers' `TrainingArguments`, which TRL and LLaMA-Factory share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from memcfg.report.words import listed
from memcfg_migrate.becomes import around, carry, inert, learning, other, same, to, trackers
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Arg, Said
from memcfg_migrate.schedule import Length, Steps, carry_steps, fraction, steps

SCHEDULERS: Final = {
    name: name
    for name in (
        "linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt", "cosine_with_min_lr",
    )
}  # fmt: skip
OPTIMIZERS: Final = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw_8bit": "adamw_8bit",
    "adamw_bnb_8bit": "adamw_8bit", "paged_adamw_8bit": "paged_adamw_8bit", "lion_8bit": "lion_8bit",
    "adafactor": "adafactor", "sgd": "sgd",
}  # fmt: skip
LOGS: Final = "a run writes `metrics.jsonl`, its own progress and a page; `run.report_to` names trackers"
HUB: Final = "nothing is uploaded: push the run's `model` folder with `hf upload`"
SAVES: Final = "checkpoints are written every `run.save_steps`, the final model always"
EVALUATES: Final = "held-out rows are evaluated by the training loss, every `run.eval_steps` and at the end"
LOADS: Final = "rows are prepared before training (`data.num_proc`) and loaded in the training process"
SPREADS: Final = "processes are set up by memcfg (`distributed.strategy`)"


def arguments(**changed: Any) -> list[Arg]:
    """The table. `changed`: defaults that a subclass has otherwise."""
    return [Arg(a.name, a.kind, changed.get(a.name, a.default), a.becomes) for a in _ARGUMENTS]


_ARGUMENTS: Final = (
    Arg("output_dir", "str?", None),
    Arg("per_device_train_batch_size", "int", 8, to("run.batch_size")),
    Arg("gradient_accumulation_steps", "int", 1, to("run.accumulation")),
    Arg("num_train_epochs", "float", 3.0),
    Arg("max_steps", "int", -1),
    Arg("learning_rate", "float", 5e-5, to("run.learning_rate")),
    Arg("lr_scheduler_type", "str", "linear", to("run.scheduler", SCHEDULERS)),
    Arg("lr_scheduler_kwargs", "dict?", None),
    Arg("warmup_steps", "float", 0),
    Arg("warmup_ratio", "float?", None),
    Arg("optim", "str", "adamw_torch_fused"),
    Arg("optim_args", "any", None, learning("arguments of the optimizer are options: `optimizer.betas`, `.eps`, `.momentum`")),
    Arg("optim_target_modules", "any", None, learning("no optimizer projects gradients here")),
    Arg("weight_decay", "float", 0.0, to("optimizer.weight_decay")),
    Arg("adam_beta1", "float", 0.9),
    Arg("adam_beta2", "float", 0.999),
    Arg("adam_epsilon", "float", 1e-8),
    Arg("average_tokens_across_devices", "bool", True, learning("a step's loss is always divided by all its targets, over all processes")),
    Arg("max_grad_norm", "float", 1.0),
    Arg("label_smoothing_factor", "float", 0.0),
    Arg("bf16", "bool?", False),
    Arg("fp16", "bool", False),
    Arg("gradient_checkpointing", "bool?", None),
    Arg("gradient_checkpointing_kwargs", "dict?", None),
    Arg("activation_checkpointing", "bool?", None),
    Arg("activation_checkpointing_kwargs", "dict?", None),
    Arg("torch_compile", "bool", False, other("models are not compiled")),
    Arg("torch_compile_backend", "str?", None, other("models are not compiled")),
    Arg("torch_compile_mode", "str?", None, other("models are not compiled")),
    Arg("use_liger_kernel", "bool", False, to("liger.enabled")),
    Arg("liger_kernel_config", "dict?", None, other("`liger.layers` switches the layers' kernels, `liger.enabled` all of them")),
    Arg("neftune_noise_alpha", "float?", None, learning("embeddings get no noise here")),
    Arg("torch_empty_cache_steps", "int?", None, other("the allocator's cache is left alone; `allocator=expandable` saves more")),
    Arg("auto_find_batch_size", "bool", False, other("`python -m memcfg plan budget=...` finds what fits before the run")),
    Arg("seed", "int", 42, to("run.seed", differs="the order of rows is memcfg's own, so the batches are others")),
    Arg("data_seed", "int?", None, learning("`run.seed` decides the order of the rows too")),
    Arg("full_determinism", "bool", False, other("kernels are not forced to be deterministic")),
    Arg("use_cpu", "bool", False, other("the CPU is used where no GPU is visible: `CUDA_VISIBLE_DEVICES=`")),
    Arg("tf32", "bool?", None, other("torch's own setting is kept")),
    Arg("train_sampling_strategy", "str", "random"),
    Arg("group_by_length", "bool", False),
    Arg("deepspeed", "any", None),
    Arg("fsdp", "any", None),
    Arg("fsdp_config", "any", None),
    Arg("parallelism_config", "any", None, learning("sequences are not split over devices")),
    Arg("logging_strategy", "str", "steps", other("a line is written every `run.log_steps`")),
    Arg("logging_steps", "float", 500),
    Arg("eval_strategy", "str", "no"),
    Arg("evaluation_strategy", "str?", None),
    Arg("eval_steps", "float?", None),
    Arg("save_strategy", "str", "steps"),
    Arg("save_steps", "float", 500),
    Arg("save_total_limit", "int?", None, to("run.keep_checkpoints")),
    Arg("report_to", "any", "none", trackers("run.report_to")),
    Arg("do_eval", "bool", False, same("rows that are held out are evaluated")),
    Arg("resume_from_checkpoint", "any", None, learning("another program's checkpoint cannot be gone on from: start from its weights with `model.path`", False)),
    Arg("dataloader_drop_last", "bool", False, learning("the last, shorter micro-batch of an epoch is trained on too")),
    Arg("ignore_data_skip", "bool", False, learning("a resumed run goes on where the data stood")),
    Arg("load_best_model_at_end", "bool", False, learning("the last model is saved, whatever the held-out loss was")),
    *around(
        EVALUATES, eval_delay=0, eval_on_start=False, eval_accumulation_steps=None, include_for_metrics=[],
        batch_eval_metrics=False, bf16_full_eval=False, fp16_full_eval=False, metric_for_best_model=None,
        greater_is_better=None,
    ),
    *inert(
        "held-out rows are evaluated in micro-batches of `run.batch_size`; the loss does not depend on it",
        per_device_eval_batch_size=8,
    ),
    *around(
        SAVES, save_only_model=False, save_on_each_node=False, enable_jit_checkpoint=False,
        restore_callback_states_from_checkpoint=False, overwrite_output_dir=False,
    ),
    *around(
        LOGS, run_name=None, project="huggingface", trackio_space_id=None, trackio_bucket_id=None,
        trackio_static_space_id=None, log_level="passive", log_level_replica="warning", log_on_each_node=True,
        logging_dir=None, disable_tqdm=None, include_num_input_tokens_seen="no", debug="",
    ),
    *around(
        HUB, push_to_hub=False, hub_token=None, hub_private_repo=None, hub_model_id=None, hub_strategy="every_save",
        hub_always_push=False, hub_revision=None,
    ),
    *around(
        LOADS, dataloader_num_workers=0, dataloader_pin_memory=True, dataloader_persistent_workers=False,
        dataloader_prefetch_factor=None, dataloader_multiprocessing_context=None, dataloader_in_order=True,
    ),
    *around(
        SPREADS, ddp_find_unused_parameters=None, ddp_bucket_cap_mb=None, ddp_broadcast_buffers=None,
        ddp_static_graph=None, ddp_backend=None, ddp_timeout=1800, accelerator_config=None,
    ),
    *inert("the first step is always logged", logging_first_step=False),
    *inert("a loss that is not finite stops the run", logging_nan_inf_filter=True),
    *inert(
        "nothing here depends on it", use_cache=False, remove_unused_columns=True, label_names=None,
        length_column_name="length", prediction_loss_only=False, eval_do_concat_batches=True,
        eval_use_gather_object=False, skip_memory_metrics=True, do_train=False, do_predict=False, local_rank=-1,
    ),
)  # fmt: skip

DUMPED: Final[Mapping[str, Any]] = {
    "hub_token": "<HUB_TOKEN>", "pad_token": "<PAD_TOKEN>", "eos_token": "<EOS_TOKEN>", "report_to": [], "fsdp": [], "disable_tqdm": False, "debug": [],
    "accelerator_config": {
        "split_batches": False, "dispatch_batches": None, "even_batches": True, "use_seedable_sampler": True,
        "non_blocking": False, "gradient_accumulation_kwargs": None,
    },
    "fsdp_config": {"min_num_params": 0, "xla": False, "xla_fsdp_v2": False, "xla_fsdp_grad_ckpt": False},
}  # fmt: skip
"""What `to_json_string` writes for arguments that were left alone."""


def training(said: Said, out: Outcome, length: Length) -> Steps:
    """Everything that several arguments decide together."""
    found = steps(
        said["num_train_epochs"], said["max_steps"], said["per_device_train_batch_size"],
        said["gradient_accumulation_steps"], length,
    )  # fmt: skip
    carry_steps(found, said, "num_train_epochs", "max_steps", length, out)
    if said.written("output_dir") is not None and said["output_dir"] is not None:
        out.carry("run.dir", said["output_dir"], said.text("output_dir"))
    _warmup(said, out, found)
    _schedule_arguments(said, out)
    _optimizer(said, out)
    _every(said, out, found)
    _order(said, out)
    norm = said["max_grad_norm"]
    carry(said, "max_grad_norm", out, "run.max_grad_norm", norm or None)
    return found


def _warmup(said: Said, out: Outcome, found: Steps) -> None:
    name = "warmup_ratio" if said["warmup_ratio"] and not said["warmup_steps"] else "warmup_steps"
    value = fraction(said[name], found.total)
    if name == "warmup_ratio":
        out.remark("there", said.text(name), "removed from Transformers: `warmup_steps` below 1 is a share now")
    if not warms_up(said, name, said["lr_scheduler_type"], out):
        return
    if value is None:
        out.remark(
            "open", said.text(name), "a share of all steps, whose number is not known: append `run.warmup_steps=N`"
        )
    else:
        carry(said, name, out, "run.warmup_steps", value)


def warms_up(said: Said, name: str, schedule: Any, out: Outcome) -> bool:
    """Whether the schedule reads a warm-up; where it does not, that is said of one that was given."""
    if schedule != "constant":
        return True
    if said[name]:
        text = "not read: the schedule `constant` has no warm-up (`run.scheduler=constant_with_warmup` has one)"
        out.remark("there", said.text(name), text)
    return False


def _schedule_arguments(said: Said, out: Outcome) -> None:
    given = said["lr_scheduler_kwargs"] or {}
    kept = {"min_lr_rate": 0.1} if said["lr_scheduler_type"] == "cosine_with_min_lr" else {}
    if given != kept:
        text = "schedules have no arguments here; `cosine_with_min_lr` ends at a tenth of `run.learning_rate`"
        out.remark("learning", said.text("lr_scheduler_kwargs"), text)


def _optimizer(said: Said, out: Outcome) -> None:
    name = said["optim"]
    found = OPTIMIZERS.get(name)
    if found is None:
        menu = listed(sorted(set(OPTIMIZERS.values())))
        out.remark("learning", said.text("optim"), f"there is no such optimizer here: `optimizer.name` is {menu}")
        return
    carry(said, "optim", out, "optimizer.name", found)
    betas, eps = [said["adam_beta1"], said["adam_beta2"]], said["adam_epsilon"]
    given = [n for n in ("adam_beta1", "adam_beta2") if n in said]
    reads = found not in ("adafactor", "sgd")
    if reads and found != "lion_8bit":
        out.carry(
            "optimizer.betas", betas, ", ".join(map(said.text, given or ["adam_beta1", "adam_beta2"])), bool(given)
        )
        carry(said, "adam_epsilon", out, "optimizer.eps", eps)
    elif reads:
        out.carry("optimizer.betas", betas, said.text("adam_beta2"), True)
    else:
        for unread in (*given, *(["adam_epsilon"] if "adam_epsilon" in said else [])):
            out.remark("there", said.text(unread), f"`{name}` does not read it")


def _every(said: Said, out: Outcome, found: Steps) -> None:
    """How often is logged, evaluated and saved."""
    _often(said, out, found, "logging_steps", "run.log_steps")
    if (older := said["evaluation_strategy"]) is not None:
        out.remark(
            "there", said.text("evaluation_strategy"), "removed from Transformers: `eval_strategy` is its name now"
        )
    strategy = "eval_strategy" if older is None else "evaluation_strategy"
    _strategy(said, out, found, said[strategy], strategy, "eval_steps", "run.eval_steps")
    said["eval_strategy"]
    _strategy(said, out, found, said["save_strategy"], "save_strategy", "save_steps", "run.save_steps")


def _strategy(said: Said, out: Outcome, found: Steps, what: str, strategy: str, every: str, key: str) -> None:
    if what == "steps":
        _often(said, out, found, every if said[every] is not None else "logging_steps", key)
    elif what == "no":
        out.carry(key, None, said.text(strategy), strategy in said)
        if every in said:
            out.remark("there", said.text(every), f"not read under `{strategy}=no`")
    elif what == "epoch" and found.epoch is not None:
        out.carry(key, found.epoch, f"{said.text(strategy)}, steps of an epoch")
    elif what == "epoch":
        out.remark("open", said.text(strategy), f"the steps of an epoch are not known: append `{key}=N`")
    else:
        out.remark("learning", said.text(strategy), f"`{key}` is a number of steps")


def _often(said: Said, out: Outcome, found: Steps, name: str, key: str) -> None:
    value = fraction(said[name], found.total)
    if value is None:
        out.remark("open", said.text(name), f"a share of all steps, whose number is not known: append `{key}=N`")
    else:
        carry(said, name, out, key, max(value, 1))


def _order(said: Said, out: Outcome) -> None:
    what = said["train_sampling_strategy"]
    if said["group_by_length"] or what == "group_by_length":
        name = "group_by_length" if said["group_by_length"] else "train_sampling_strategy"
        text = "rows of similar length share micro-batches under `batching=tokens`, which bounds their tokens instead of their number"
        out.remark("differs", said.text(name), text)
    elif what != "random" and "train_sampling_strategy" in said:
        out.remark("learning", said.text("train_sampling_strategy"), "rows are shuffled in every epoch")
