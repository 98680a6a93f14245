"""What trainers that sample groups of completions declare alike: options under each trainer's own name, and rules over them.

    own = options("acme", beta=0.05)
    Plugin(name="acme", options=[...own], rules=[*rules("acme", own, alone="..."), ...])

Nothing heavy is imported: plugins call this where they declare themselves."""

from __future__ import annotations

from typing import NamedTuple

from memcfg.dropout import dropout_rules
from memcfg.solver.expr import Bool, Expr, Int, Option, Setting, key
from memcfg.solver.rules import Default, Forbid, Ignored, RemovedKey, RenameKey, Rule


class Options(NamedTuple):
    """Options that all of these trainers have."""

    generations: Option
    eval_generations: Option
    beta: Option
    iterations: Option
    epsilon: Option
    epsilon_high: Option
    truncated: Option
    shuffle: Option
    dropout: Option


def options(trainer: str, *, beta: float) -> Options:
    """Those of `trainer`, whose KL penalty weighs `beta` where nothing else is said."""
    return Options(
        generations=Int(
            f"{trainer}.num_generations", minimum=1, unit="completions", doc="completions sampled for each prompt"
        ),
        eval_generations=Setting(
            f"{trainer}.num_generations_eval", int, default=None, nullable=True, minimum=1, unit="completions",
            doc=f"completions sampled for each prompt in evaluation; null takes `{trainer}.num_generations`",
        ),
        beta=Setting(
            f"{trainer}.beta", float, default=beta, minimum=0.0, doc="weight of the KL penalty; 0 loads no reference"
        ),
        iterations=Setting(
            f"{trainer}.num_iterations", int, default=1, minimum=1, doc="updates made with each generation"
        ),
        epsilon=Setting(
            f"{trainer}.epsilon", float, default=0.2, minimum=0.0, doc="how far a ratio may move before it is clipped"
        ),
        epsilon_high=Setting(
            f"{trainer}.epsilon_high", float, default=None, nullable=True, minimum=0.0,
            doc=f"upper clip; null takes `{trainer}.epsilon`",
        ),
        truncated=Setting(
            f"{trainer}.mask_truncated", bool, default=False, doc="leave completions that hit the limit out of the loss"
        ),
        shuffle=Setting(f"{trainer}.shuffle", bool, default=True, doc="shuffle the prompts"),
        dropout=Bool(f"{trainer}.disable_dropout", doc="switch dropout off in policy and reference"),
    )  # fmt: skip


def rules(trainer: str, own: Options, *, alone: str) -> list[Rule]:
    """Rules of `trainer`. `alone` says, as a clause, what a group of one lacks."""
    here = key("trainer.name") == trainer
    return [
        Forbid(
            here & (own.generations <= 1), id=f"{trainer}.num_generations.group", because=alone,
            suggest=[f"{trainer}.num_generations=2"],
        ),
        Default(
            key("run.learning_rate"), 1e-6, when=here, id=f"{trainer}.run.learning_rate",
            because="a policy that learns from its own samples is moved in small steps",
        ),
        Default(
            key("run.learning_rate"), 2e-3, when=here & (key("model.source") == "tiny"), id=f"{trainer}.run.learning_rate.tiny",
            because="a small model that starts from noise wants larger steps than one that was trained before",
        ),
        *dropout_rules(
            own.dropout, False, because="the policy is trained as it samples: dropout stays as the model has it"
        ),
        *_lengths(trainer, here),
    ]  # fmt: skip


def _lengths(trainer: str, here: Expr) -> list[Rule]:
    kept = "prompts are kept whole and completions end at `generation.max_new_tokens`"
    return [
        Default(key("truncation.max_length"), None, when=here, id=f"{trainer}.truncation.max_length", because=kept),
        Ignored(
            key("truncation.max_length"), when=here, except_values=(None,), id=f"{trainer}.truncation.unused",
            because=f"nothing is cut: {kept}",
        ),
        Ignored(
            key("truncation.mode"), when=here, id=f"{trainer}.truncation.mode",
            because="nothing is cut, so there is no side to keep",
        ),
        RemovedKey(
            f"{trainer}.max_prompt_length", advice="filter or pre-truncate the data set instead",
            id=f"{trainer}.max_prompt_length.removed", because="a prompt cut in the middle asks another question",
        ),
        RenameKey(
            f"{trainer}.max_completion_length", key("generation.max_new_tokens"), id=f"{trainer}.max_completion_length.renamed",
            because="all trainers that generate share one limit",
        ),
    ]  # fmt: skip
