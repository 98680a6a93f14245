"""Online DPO: two completions are sampled for each prompt, a judge prefers one, and the pair is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Bool, Check, Default, Enum, Ignored, Plugin, RenameKey, Setting, key, only_when
from memcfg.dropout import dropout_rules

here = key("trainer.name") == "online_dpo"
tiny = key("model.source") == "tiny"
PAPER = "https://arxiv.org/abs/2402.04792"

loss = Enum("online_dpo.loss", ("sigmoid", "ipo"), doc="how a judged pair becomes a loss")
beta = Setting(
    "online_dpo.beta", float, default=0.1, minimum=0.0, doc="how strongly the policy is tied to the reference"
)
judge = Setting(
    "online_dpo.judge", str, default=None, nullable=True, doc="name of a pairwise judge, instead of rewards"
)
penalty = Setting(
    "online_dpo.missing_eos_penalty", float, default=None, nullable=True, minimum=0.0,
    doc="taken from the reward of a completion that does not end; null takes nothing",
)  # fmt: skip
dropout = Bool("online_dpo.disable_dropout", doc="switch dropout off in policy and reference")


def _room_for_prompt(values: Mapping[str, Any]) -> str | None:
    new, limit = values["generation.max_new_tokens"], values["truncation.max_length"]
    if limit is None or new < limit:
        return None
    return f"`generation.max_new_tokens={new}` leaves no room for a prompt within `truncation.max_length={limit}`"


def _flat(values: Mapping[str, Any]) -> str | None:
    return (
        "`online_dpo.beta` is 0, and the loss is then the same for every policy"
        if values["online_dpo.beta"] == 0
        else None
    )


def _divisor(values: Mapping[str, Any]) -> str | None:
    return "`online_dpo.beta` is 0, and the loss `ipo` divides by it" if values["online_dpo.beta"] == 0 else None


plugin = Plugin(
    name="online_dpo",
    doc="preference optimisation on pairs that the policy samples itself",
    options=[loss, beta, judge, penalty, dropout],
    rules=[
        *dropout_rules(dropout, True, because="policy and reference would differ by chance with it"),
        Default(
            loss, "sigmoid", when=here, id="online_dpo.loss.default", because="it is the loss of the DPO paper", ref=PAPER
        ),
        Default(
            key("run.learning_rate"), 5e-7, when=here, id="online_dpo.run.learning_rate",
            because="a policy that learns from its own samples is moved in small steps",
        ),
        Default(
            key("run.learning_rate"), 3e-3, when=here & tiny, id="online_dpo.run.learning_rate.tiny",
            because="a small model that starts from noise wants larger steps than one that was trained before",
        ),
        Default(
            key("run.batch_size"), 32, when=here & tiny, id="online_dpo.run.batch_size.tiny",
            because="a small model samples many completions as fast as a few, and more pairs say more",
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
        Default(
            beta, 0.01, when=here & tiny, id="online_dpo.beta.tiny",
            because="a model that starts from noise has little to stay close to",
        ),
        Check(
            [loss, beta], _divisor, when=here & (loss == "ipo"), id="online_dpo.beta.ipo",
            because="the IPO loss pulls margins to half of one over beta",
        ),
        Check(
            [loss, beta], _flat, when=here & (loss == "sigmoid"), id="online_dpo.beta.sigmoid",
            because="beta is what the loss multiplies margins by",
        ),
        RenameKey(
            "online_dpo.max_new_tokens", key("generation.max_new_tokens"), id="online_dpo.max_new_tokens.renamed",
            because="all trainers that generate share one limit",
        ),
        *only_when(
            here, loss, beta, judge, penalty, dropout, because="only `trainer=online_dpo` reads it"
        ),
    ],
    provides={"trainer.name": ("online_dpo",)},
    active=here,
    hooks="memcfg_online_dpo.hooks",
)  # fmt: skip
