"""A reward model: a scalar for each completion, trained on pairs (Bradley-Terry)."""

from __future__ import annotations

from memcfg import Bool, Default, Forbid, Ignored, Plugin, Setting, key, only_when
from memcfg.dropout import dropout_rules

here = key("trainer.name") == "reward"
merge = key("peft.merge")
adapts = key("peft.method") != "none"
few_bits = key("quantization.mode").isin("nf4", "fp4", "int8")
ADDED = ("lora", "adalora", "loha", "lokr", "oft", "vera", "ia3")
"""Adapters whose change can be added to the weights."""

center = Setting(
    "reward.center_coefficient", float, default=None, nullable=True, minimum=0.0,
    doc="weight of a penalty that pulls the mean reward towards zero; null leaves it out",
)  # fmt: skip
dropout = Bool("reward.disable_dropout", doc="switch dropout off")

plugin = Plugin(
    name="reward",
    doc="a scalar reward learned from pairs of completions",
    options=[center, dropout],
    rules=[
        *dropout_rules(dropout, True, because="the rewards of a pair would differ by chance with it", of="the model"),
        Default(
            key("run.learning_rate"), 1e-4, when=here, id="reward.run.learning_rate",
            because="the reward head starts from nothing and learns faster than a policy",
        ),
        Default(
            key("run.learning_rate"), 1e-3, when=here & (key("model.source") == "tiny"), id="reward.run.learning_rate.tiny",
            because="a small model that starts from noise wants larger steps than one that was trained before",
        ),
        Default(
            merge, True, when=here & key("peft.method").isin(*ADDED) & ~few_bits, id="reward.peft.merge",
            because="a reward model is saved as a whole sequence classifier",
        ),
        Forbid(
            here & adapts & merge.off, id="reward.peft.whole",
            because="a reward model is saved as a whole sequence classifier, with the adapter merged in",
            suggest=["peft.merge=true", "peft.method=none"],
        ),
        Forbid(
            here & key("peft.head").on, id="reward.peft.head",
            because="the scalar head is new and trained whole, so there is nothing to adapt",
            suggest=["peft.head=false"],
        ),
        Ignored(
            key("loss.kernel"), when=here, id="reward.loss.kernel",
            because="a scalar head has no vocabulary whose logits would have to be saved",
        ),
        Ignored(
            key("loss.chunk_mib"), when=here, id="reward.loss.chunk_mib",
            because="a scalar head has no logits that would be made in chunks",
        ),
        Ignored(
            key("truncation.mode"), when=here, id="reward.truncation.mode",
            because="a pair with a side longer than `truncation.max_length` is left out whole: a cut answer cannot be judged",
        ),
        *only_when(here, center, dropout, because="only `trainer=reward` reads it"),
    ],
    provides={"trainer.name": ("reward",)},
    hooks="memcfg_reward.hooks",
    active=here,
)  # fmt: skip
