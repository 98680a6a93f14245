"""Supervised fine-tuning: the next token of a text, or of the completion after its prompt."""

from __future__ import annotations

from memcfg import Bool, Default, Plugin, Setting, key, only_when

trainer = key("trainer.name")
completion_only = Setting(
    "sft.completion_only", bool, nullable=True,
    doc="learn the completion only; null: yes where the data has completions",
)  # fmt: skip
assistant_only = Bool("sft.assistant_only", doc="learn the assistant's turns of a conversation only")

from_noise = (trainer == "sft") & (key("model.source") == "tiny")

plugin = Plugin(
    name="sft",
    doc="trains on text, or on prompts and completions",
    options=[completion_only, assistant_only],
    rules=[
        Default(
            trainer, "sft", id="sft.trainer.default",
            because="supervised fine-tuning is what a run does unless another trainer is chosen",
        ),
        Default(
            completion_only, None, id="sft.completion_only.default",
            because="the data shows whether it has completions",
        ),
        Default(
            assistant_only, False, id="sft.assistant_only.default", when=trainer == "sft",
            because="rows need not be conversations",
        ),
        Default(
            key("run.learning_rate"), 3e-3, id="sft.run.learning_rate.tiny", when=from_noise,
            because="a small model that starts from noise wants larger steps than one that was trained before",
        ),
        Default(
            key("run.warmup_steps"), 10, id="sft.run.warmup_steps.tiny",
            when=from_noise & (key("run.scheduler") != "constant"),
            because="the first steps of a model that starts from noise point anywhere",
        ),
        *only_when(trainer == "sft", completion_only, assistant_only, because="only `trainer=sft` reads it"),
    ],
    provides={"trainer.name": ("sft",)},
    groups={"trainer": "what is trained, on which objective"},
    hooks="memcfg_sft.hooks",
    active=trainer == "sft",
)  # fmt: skip
