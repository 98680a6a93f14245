"""Generalized Knowledge Distillation: a student learns a teacher's distribution, partly on its own completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Bool, Check, Default, Forbid, Ignored, Plugin, RenameKey, Setting, key, only_when
from memcfg.dropout import dropout_rules

here = key("trainer.name") == "gkd"

teacher = Setting("gkd.teacher", str, default=None, nullable=True, doc="folder or hub name of the teacher")
share = Setting(
    "gkd.lmbda", float, default=0.0, minimum=0.0, maximum=1.0,
    doc="share of steps on completions that the student samples",
)  # fmt: skip
beta = Setting(
    "gkd.beta", float, default=0.5, minimum=0.0, maximum=1.0,
    doc="between the forward KL divergence (0) and the reverse one (1)",
)  # fmt: skip
offload = Bool("gkd.teacher_offload", doc="keep the teacher in host memory but for its own forward", free=True)
sequences = Setting(
    "gkd.seq_kd", bool, default=False, doc="learn from the teacher's completions in place of given ones"
)
dropout = Bool("gkd.disable_dropout", doc="switch dropout off in student and teacher")


def _taught(values: Mapping[str, Any]) -> str | None:
    if values["gkd.teacher"]:
        return None
    return (
        "no teacher is named: add `gkd.teacher=FOLDER`, a saved model of the student's tokenizer (one for the tiny model "
        "comes from `python -m memcfg run.dir=runs/teacher`: `gkd.teacher=runs/teacher/model`)"
    )


def _given_left(values: Mapping[str, Any]) -> str | None:
    if not values["gkd.seq_kd"] or values["gkd.lmbda"] < 1:
        return None
    return "`gkd.lmbda=1.0` leaves no step for the teacher's completions, so `gkd.seq_kd=true` is not read"


plugin = Plugin(
    name="gkd",
    doc="distillation from a teacher, on given and on own completions",
    options=[teacher, share, beta, offload, sequences, dropout],
    rules=[
        *dropout_rules(dropout, True, because="student and teacher would differ by chance with it", of="student and teacher"),
        Default(
            key("run.learning_rate"), 2e-5, when=here, id="gkd.run.learning_rate",
            because="distillation is supervised learning, with its learning rate",
        ),
        Default(
            key("run.learning_rate"), 3e-3, when=here & (key("model.source") == "tiny"), id="gkd.run.learning_rate.tiny",
            because="a small model that starts from noise wants larger steps than one that was trained before",
        ),
        Default(
            share, 0.5, when=here & (key("model.source") == "hub"), id="gkd.lmbda.default",
            because="a student that learns from what it writes itself meets its own mistakes; half of the steps is usual",
            ref="https://arxiv.org/abs/2306.13649",
        ),
        Default(
            offload, False, when=here, id="gkd.teacher_offload.default", because="copies cost time where the device has room"
        ),
        Forbid(
            offload.on & (key("device.type") == "cpu") & key("offload.rehearsal").off, id="gkd.teacher_offload.accelerator",
            because="there is no accelerator whose memory it could free", suggest=["gkd.teacher_offload=false"],
        ),
        Forbid(
            offload.on & (key("quantization.teacher") == "int8"), id="gkd.teacher_offload.int8",
            because="eight-bit layers keep a hold of their weights on the device",
            suggest=["quantization.teacher=nf4", "gkd.teacher_offload=false"],
        ),
        Check(
            [teacher], _taught, when=here, id="gkd.teacher.needed",
            because="a student learns somebody's distribution, and there is no default teacher",
            suggest=["gkd.teacher=runs/teacher/model"],
        ),
        Check(
            [share, sequences], _given_left, when=here, id="gkd.seq_kd.share",
            because="the student samples the completions of every step",
        ),
        Ignored(
            key("loss.kernel"), when=here, except_values=("torch", "triton", "liger"), id="gkd.loss.kernel",
            because="the divergence is computed chunk by chunk, whatever computes the losses of tokens",
        ),
        RenameKey(
            "gkd.max_new_tokens", key("generation.max_new_tokens"), id="gkd.max_new_tokens.renamed",
            because="all trainers that generate share one limit",
        ),
        RenameKey(
            "gkd.temperature", key("generation.temperature"), id="gkd.temperature.renamed",
            because="all trainers that generate share one temperature",
        ),
        *only_when(here, teacher, share, beta, offload, sequences, dropout, because="only `trainer=gkd` reads it"),
    ],
    provides={"trainer.name": ("gkd",)},
    hooks="memcfg_gkd.hooks",
    active=here,
)  # fmt: skip
