"""Online DPO: two completions are sampled for each prompt, a judge prefers one, and the pair is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Check, Default, Enum, Ignored, NotYet, Plugin, RenameKey, Setting, key, only_when

here = key("trainer.name") == "online_dpo"
PAPER = "https://arxiv.org/abs/2402.04792"

loss = Enum("online_dpo.loss", ("sigmoid", "ipo"), doc="how a judged pair becomes a loss")
beta = Setting(
    "online_dpo.beta", float, default=0.1, minimum=0.0, doc="how strongly the policy is tied to the reference"
)
rewards = Setting("online_dpo.rewards", list, default=[], doc="names of the reward functions that judge a pair")
weights = Setting(
    "online_dpo.reward_weights", list, default=None, nullable=True, doc="a weight for each reward; null is 1 each"
)
judge = Setting(
    "online_dpo.judge", str, default=None, nullable=True, doc="name of a pairwise judge, instead of rewards"
)
penalty = Setting(
    "online_dpo.missing_eos_penalty", float, default=None, nullable=True, minimum=0.0,
    doc="taken from the reward of a completion that does not end; null takes nothing",
)  # fmt: skip
dropout = Setting("online_dpo.disable_dropout", bool, default=True, doc="switch dropout off in policy and reference")


def _room_for_prompt(values: Mapping[str, Any]) -> str | None:
    new, limit = values["generation.max_new_tokens"], values["truncation.max_length"]
    if limit is None or new < limit:
        return None
    return f"`generation.max_new_tokens={new}` leaves no room for a prompt within `truncation.max_length={limit}`"


plugin = Plugin(
    name="online_dpo",
    doc="preference optimisation on pairs that the policy samples itself",
    options=[loss, beta, rewards, weights, judge, penalty, dropout],
    rules=[
        Default(
            loss, "sigmoid", when=here, id="online_dpo.loss.default", because="it is the loss of the DPO paper", ref=PAPER
        ),
        Default(
            key("run.learning_rate"), 5e-7, when=here, id="online_dpo.run.learning_rate",
            because="a policy that learns from its own samples is moved in small steps",
        ),
        Default(
            key("truncation.max_length"), 512, when=here, id="online_dpo.truncation.max_length",
            because="both sampled completions are scored with their prompt, twice the tokens of a given one",
        ),
        Ignored(
            key("truncation.mode"), when=here, except_values=("keep_end",), id="online_dpo.truncation.mode",
            because="the start of the prompt is cut, so that the sampled completion stays whole",
        ),
        Default(
            key("truncation.mode"), "keep_end", when=here, id="online_dpo.truncation.keep_end",
            because="the start of the prompt is cut, so that the sampled completion stays whole",
        ),
        Check(
            ["generation.max_new_tokens", "truncation.max_length"], _room_for_prompt, when=here,
            id="online_dpo.length.room", because="prompt and completion share `truncation.max_length`",
        ),
        RenameKey(
            "online_dpo.max_new_tokens", key("generation.max_new_tokens"), id="online_dpo.max_new_tokens.renamed",
            because="all trainers that generate share one limit",
        ),
        *only_when(
            here, loss, beta, rewards, weights, judge, penalty, dropout, because="only `trainer=online_dpo` reads it"
        ),
    ],
    provides={"trainer.name": ("online_dpo",)},
    active=here,
    not_yet=[NotYet(here, "the Online DPO objective and its rollouts are not written yet")],
)  # fmt: skip
