"""The core plugin: the options of every run, whatever the technique. Always present, always first.

It owns which trainer runs (each trainer plugin adds itself to the menu of `trainer.name`), how long and how large a run
is, the memory budget, and the facts of the host that rules read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg.registry.plugin import Plugin
from memcfg.solver.expr import Enum, Fact, Int, Option, Setting
from memcfg.solver.rules import Check, Default, Ignored

SCHEDULERS = (
    "linear",
    "cosine",
    "constant",
    "constant_with_warmup",
    "polynomial",
    "inverse_sqrt",
    "cosine_with_min_lr",
)

TRACKERS = ("tensorboard", "wandb", "trackio")
"""Where metrics can go besides the run's own file."""

trainer = Enum(
    "trainer.name", (), open=True, pivotal=True, doc="what is trained for: the objective and the data it needs"
)
dropout = Enum(
    "trainer.dropout", ("disabled",), role="derived",
    doc="disabled where the trainer switches every dropout of the model off; unset: they stay as they are",
)  # fmt: skip

scheduler = Enum("run.scheduler", SCHEDULERS, doc="how the learning rate moves after warm-up")

run: tuple[Option, ...] = (
    Setting("run.dir", str, default=None, nullable=True, doc="folder of the run; null makes `runs/<time>`", free=True),
    Setting("run.steps", int, default=80, minimum=1, unit="steps", doc="optimizer steps to take", free=True),
    Setting("run.batch_size", int, default=2, minimum=1, unit="rows", doc="rows in a micro-batch, on each device"),
    Setting("run.accumulation", int, default=1, minimum=1, unit="micro-batches", doc="micro-batches in a step"),
    Setting("run.learning_rate", float, default=2e-5, minimum=0.0, doc="peak learning rate"),
    scheduler,
    Setting("run.warmup_steps", int, default=0, minimum=0, unit="steps", doc="steps in which the learning rate rises"),
    Setting(
        "run.max_grad_norm", float, default=1.0, minimum=0.0, nullable=True,
        doc="gradients longer than this are shortened to it; null leaves them alone",
    ),
    Setting("run.seed", int, default=0, minimum=0, maximum=2**32 - 1, doc="seed of weights, data order and dropout"),
    Setting("run.log_steps", int, default=10, minimum=1, unit="steps", doc="steps between two log lines", free=True),
    Setting(
        "run.save_steps", int, default=None, minimum=1, nullable=True, unit="steps",
        doc="steps between two checkpoints; null saves the final model only", free=True,
    ),
    Setting(
        "run.keep_checkpoints", int, default=None, minimum=1, nullable=True, unit="checkpoints",
        doc="how many of the newest checkpoints stay; null keeps all", free=True,
    ),
    Setting(
        "run.eval_steps", int, default=None, minimum=1, nullable=True, unit="steps",
        doc="steps between two evaluations; null evaluates at the end only", free=True,
    ),
    Setting(
        "run.report_to", (list, str), default=[], free=True,
        doc="where metrics go besides `metrics.jsonl`: tensorboard, wandb, trackio",
    ),
    Setting(
        "run.resume", str, default=None, nullable=True,
        doc="checkpoint, or folder of a run, to go on from; `auto` means the newest in `run.dir`", free=True,
    ),
)  # fmt: skip

plugins = (
    Setting(
        "plugins.only",
        (list, str),
        default=[],
        doc="of the plugins of third parties only these, by name or distribution; memcfg's own are always there",
    ),
    Setting(
        "plugins.off", (list, str), default=[], free=True, doc="plugins of third parties that this run does without"
    ),
)

on_oom = Enum(
    "run.on_oom", ("stop", "shrink"), free=True,
    doc="when a step runs out of memory: stop and explain, or go on with micro-batches of half the rows",
)  # fmt: skip

budget = Setting(
    "budget.bytes", int, default=None, minimum=1, nullable=True, unit="bytes",
    doc="memory that the run may use on each device; null means all there is", free=True,
)  # fmt: skip

device_type = Fact(
    "device.type", probe="memcfg.core.facts:device_type", values=("cpu", "cuda"), doc="the device that training uses"
)
device_capability = Fact(
    "device.capability", probe="memcfg.core.facts:device_capability", values=None, minimum=0,
    doc="CUDA compute capability of the device, times ten (90 is 9.0); 0 on a CPU",
)  # fmt: skip
world_size = Fact(
    "world.size", probe="memcfg.core.facts:world_size", values=None, minimum=1, doc="processes in the run",
    stated_by="distributed.processes",
)  # fmt: skip
device_name = Setting(
    "device.name", str, default=None, nullable=True, doc="the card that `assume.device` stands for, as in `h100`"
)


def _tracked(values: Mapping[str, Any]) -> str | None:
    given = values["run.report_to"]
    unknown = [name for name in ([given] if isinstance(given, str) else given) if name not in TRACKERS]
    return f"`{unknown[0]}` is not one of {', '.join(f'`{name}`' for name in TRACKERS)}" if unknown else None


plugin = Plugin(
    name="core",
    doc="the options of every run, and the facts of the host",
    options=(
        trainer,
        dropout,
        *run,
        on_oom,
        *plugins,
        budget,
        device_type,
        device_capability,
        world_size,
        device_name,
    ),
    rules=(
        Default(
            on_oom,
            "stop",
            id="core.on_oom.default",
            because="a run that needs smaller micro-batches is better begun with them",
        ),
        Check(
            ["run.report_to"],
            _tracked,
            id="core.report_to.known",
            because="a tracker that is not known would be given nothing",
        ),
        Default(scheduler, "linear", id="core.scheduler.default", because="it is what Transformers does by itself"),
        Ignored(
            "run.warmup_steps",
            when=scheduler == "constant",
            except_values=(0,),
            id="core.warmup_steps.constant",
            because="a constant learning rate does not rise either: `constant_with_warmup` does",
        ),
    ),
    groups={"trainer": "what is trained for"},
)
