"""A reward model: a scalar for each completion, trained on pairs (Bradley-Terry)."""

from __future__ import annotations

from memcfg import Default, Ignored, NotYet, Plugin, Setting, key, only_when

here = key("trainer.name") == "reward"

center = Setting(
    "reward.center_coefficient", float, default=None, nullable=True, minimum=0.0,
    doc="weight of a penalty that pulls the mean reward towards zero; null leaves it out",
)  # fmt: skip
dropout = Setting("reward.disable_dropout", bool, default=True, doc="switch dropout off")

plugin = Plugin(
    name="reward",
    doc="a scalar reward learned from pairs of completions",
    options=[center, dropout],
    rules=[
        Default(
            key("run.learning_rate"), 1e-4, when=here, id="reward.run.learning_rate",
            because="the reward head starts from nothing and learns faster than a policy",
        ),
        Ignored(
            key("truncation.mode"), when=here, id="reward.truncation.mode",
            because="a pair with a side longer than `truncation.max_length` is left out whole: a cut answer cannot be judged",
        ),
        *only_when(here, center, dropout, because="only `trainer=reward` reads it"),
    ],
    provides={"trainer.name": ("reward",)},
    active=here,
    not_yet=[NotYet(here, "the reward objective and its scalar head are not written yet")],
)  # fmt: skip
