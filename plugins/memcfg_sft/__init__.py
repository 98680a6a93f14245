"""Supervised fine-tuning: the next token of a text, or of the completion after its prompt."""

from __future__ import annotations

from memcfg import Default, Plugin, Setting, key, only_when

trainer = key("trainer.name")
completion_only = Setting(
    "sft.completion_only", bool, nullable=True,
    doc="learn the completion only; null: yes where the data has completions",
)  # fmt: skip

plugin = Plugin(
    name="sft",
    doc="trains on text, or on prompts and completions",
    options=[completion_only],
    rules=[
        Default(
            trainer, "sft", id="sft.trainer.default",
            because="supervised fine-tuning is what a run does unless another trainer is chosen",
        ),
        Default(
            completion_only, None, id="sft.completion_only.default",
            because="the data shows whether it has completions",
        ),
        *only_when(trainer == "sft", completion_only, because="only `trainer=sft` reads it"),
    ],
    provides={"trainer.name": ("sft",)},
    groups={"trainer": "what is trained, on which objective"},
    hooks="memcfg_sft.hooks",
    active=trainer == "sft",
)  # fmt: skip
