"""REINFORCE with a leave-one-out baseline: each completion is compared with the others of its prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Check, Default, Plugin, Setting, grouped, key, only_when

here = key("trainer.name") == "rloo"
tiny = key("model.source") == "tiny"
PAPER = "https://arxiv.org/abs/2402.14740"

own = grouped.options("rloo", beta=0.05)
normalize = Setting("rloo.normalize_advantages", bool, default=False, doc="divide advantages by their deviation")
clip = Setting(
    "rloo.reward_clip", list, default=None, nullable=True, doc="lowest and highest reward; null clips nothing"
)
OWN = (
    own.generations, own.eval_generations, own.beta, own.iterations, own.epsilon, own.epsilon_high, normalize, clip,
    own.truncated, own.shuffle, own.dropout,
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
    options=OWN,
    rules=[
        *grouped.rules(
            "rloo", own, alone="the baseline is the mean of a prompt's other completions, and a group of one has no other"
        ),
        Default(
            own.generations, 2, when=here, id="rloo.num_generations.default",
            because="two completions are the least that one can be compared with another", ref=PAPER,
        ),
        Default(
            own.generations, 8, when=here & tiny, id="rloo.num_generations.tiny",
            because="a small model samples eight completions almost as fast as two",
        ),
        Default(
            own.beta, 0.0, when=here & tiny, id="rloo.beta.tiny",
            because="a model that starts from noise has nothing to stay close to",
        ),
        Default(
            key("run.batch_size"), 64, when=here & tiny, id="rloo.run.batch_size.tiny",
            because="a small model samples many completions as fast as a few, and more prompts say more",
        ),
        Check(
            [clip], _bounds, when=here, id="rloo.reward_clip.bounds", because="rewards are clipped from below and from above"
        ),
        *only_when(here, *OWN, because="only `trainer=rloo` reads it"),
    ],
    provides={"trainer.name": ("rloo",)},
    active=here,
    hooks="memcfg_rloo.hooks",
    allowed={"dead-value rloo.num_generations=1": "a rule says why, which the least of a range cannot"},
)  # fmt: skip
