"""REINFORCE with a leave-one-out baseline: each completion is compared with the others of its prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import (
    Bool,
    Check,
    Default,
    Forbid,
    Force,
    Ignored,
    Int,
    Plugin,
    RemovedKey,
    RenameKey,
    Setting,
    key,
    only_when,
)

here = key("trainer.name") == "rloo"
tiny = key("model.source") == "tiny"
PAPER = "https://arxiv.org/abs/2402.14740"

generations = Int("rloo.num_generations", minimum=1, unit="completions", doc="completions sampled for each prompt")
eval_generations = Setting(
    "rloo.num_generations_eval", int, default=None, nullable=True, minimum=1, unit="completions",
    doc="completions sampled for each prompt in evaluation; null takes `rloo.num_generations`",
)  # fmt: skip
beta = Setting("rloo.beta", float, default=0.05, minimum=0.0, doc="weight of the KL penalty; 0 loads no reference")
iterations = Setting("rloo.num_iterations", int, default=1, minimum=1, doc="updates made with each generation")
epsilon = Setting("rloo.epsilon", float, default=0.2, minimum=0.0, doc="how far a ratio may move before it is clipped")
epsilon_high = Setting(
    "rloo.epsilon_high", float, default=None, nullable=True, minimum=0.0, doc="upper clip; null takes `rloo.epsilon`"
)
normalize = Setting("rloo.normalize_advantages", bool, default=False, doc="divide advantages by their deviation")
clip = Setting(
    "rloo.reward_clip", list, default=None, nullable=True, doc="lowest and highest reward; null clips nothing"
)
truncated = Setting(
    "rloo.mask_truncated", bool, default=False, doc="leave completions that hit the limit out of the loss"
)
shuffle = Setting("rloo.shuffle", bool, default=True, doc="shuffle the prompts")
dropout = Bool("rloo.disable_dropout", doc="switch dropout off in policy and reference")
own = (
    generations, eval_generations, beta, iterations, epsilon, epsilon_high, normalize, clip, truncated,
    shuffle, dropout,
)  # fmt: skip


def _bounds(values: Mapping[str, Any]) -> str | None:
    given = values["rloo.reward_clip"]
    numbers = [bound for bound in given or () if type(bound) in (int, float)]
    if given is None or (len(given) == len(numbers) == 2 and numbers[0] < numbers[1]):
        return None
    return f"`{given}` is not a lowest and a highest reward, as in `rloo.reward_clip=[-1.0,1.0]`"


plugin = Plugin(
    name="rloo",
    doc="online reinforcement with a leave-one-out baseline",
    options=own,
    rules=[
        Force(
            "trainer.dropout", "disabled", when=dropout.on, id="rloo.dropout.off",
            because="`rloo.disable_dropout` switches it off in policy and reference",
        ),
        Default(
            dropout, False, when=here, id="rloo.disable_dropout.default",
            because="the policy is trained as it samples: dropout stays as the model has it",
        ),
        Default(
            generations, 2, when=here, id="rloo.num_generations.default",
            because="two completions are the least that one can be compared with another", ref=PAPER,
        ),
        Default(
            generations, 8, when=here & tiny, id="rloo.num_generations.tiny",
            because="a small model samples eight completions almost as fast as two",
        ),
        Default(
            beta, 0.0, when=here & tiny, id="rloo.beta.tiny",
            because="a model that starts from noise has nothing to stay close to",
        ),
        Forbid(
            here & (generations <= 1), id="rloo.num_generations.group",
            because="the baseline is the mean of a prompt's other completions, and a group of one has no other",
            suggest=["rloo.num_generations=2"],
        ),
        Default(
            key("run.learning_rate"), 1e-6, when=here, id="rloo.run.learning_rate",
            because="a policy that learns from its own samples is moved in small steps",
        ),
        Default(
            key("run.learning_rate"), 2e-3, when=here & tiny, id="rloo.run.learning_rate.tiny",
            because="a small model that starts from noise wants larger steps than one that was trained before",
        ),
        Default(
            key("run.batch_size"), 64, when=here & tiny, id="rloo.run.batch_size.tiny",
            because="a small model samples many completions as fast as a few, and more prompts say more",
        ),
        Default(
            key("truncation.max_length"), None, when=here, id="rloo.truncation.max_length",
            because="prompts are kept whole and completions end at `generation.max_new_tokens`",
        ),
        Ignored(
            key("truncation.max_length"), when=here, except_values=(None,), id="rloo.truncation.unused",
            because="nothing is cut: prompts are kept whole and completions end at `generation.max_new_tokens`",
        ),
        Ignored(
            key("truncation.mode"), when=here, id="rloo.truncation.mode",
            because="nothing is cut, so there is no side to keep",
        ),
        Check(
            [clip], _bounds, when=here, id="rloo.reward_clip.bounds", because="rewards are clipped from below and from above"
        ),
        RemovedKey(
            "rloo.max_prompt_length", advice="filter or pre-truncate the data set instead",
            id="rloo.max_prompt_length.removed", because="a prompt cut in the middle asks another question",
        ),
        RenameKey(
            "rloo.max_completion_length", key("generation.max_new_tokens"), id="rloo.max_completion_length.renamed",
            because="all trainers that generate share one limit",
        ),
        *only_when(here, *own, because="only `trainer=rloo` reads it"),
    ],
    provides={"trainer.name": ("rloo",)},
    active=here,
    hooks="memcfg_rloo.hooks",
    allowed={"dead-value rloo.num_generations=1": "a rule says why, which the least of a range cannot"},
)  # fmt: skip
