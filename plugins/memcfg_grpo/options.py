"""GRPO's own options. Defaults of the choices are rules (`__init__.py`); those of the settings stand here."""

from __future__ import annotations

from memcfg import Bool, Enum, Setting, grouped, key

here = key("trainer.name") == "grpo"

loss = Enum(
    "grpo.loss",
    ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    doc="how token losses are clipped and averaged",
)
own = grouped.options("grpo", beta=0.0)
generations, beta, epsilon, epsilon_high = own.generations, own.beta, own.epsilon, own.epsilon_high
delta = Setting(
    "grpo.delta",
    float,
    default=None,
    nullable=True,
    minimum=1.0,
    doc="second upper clip of the ratio, for bad completions; null has none",
)
level = Enum("grpo.importance_level", ("token", "sequence"), doc="whether ratios are taken by token or by completion")
scale = Setting(
    "grpo.scale_rewards", str, default="group", values=("group", "batch", "none"),
    doc="whose deviation the advantages are divided by",
)  # fmt: skip
quantile = Setting(
    "grpo.top_entropy_quantile", float, default=1.0, minimum=0.0, maximum=1.0,
    doc="share of a micro-batch's tokens, those of highest entropy, that are learned from",
)  # fmt: skip
entropy = Setting(
    "grpo.entropy_coef", float, default=0.0, doc="weight of the entropy bonus; an adaptive one begins with it"
)
adaptive = Bool("grpo.entropy_adaptive", doc="steer the entropy bonus towards a target")
entropy_target = Setting(
    "grpo.entropy_target", float, default=0.2, minimum=0.0, unit="nats", doc="the entropy aimed at"
)
entropy_min = Setting("grpo.entropy_coef_min", float, default=0.0, doc="lowest weight of the adaptive bonus")
entropy_max = Setting("grpo.entropy_coef_max", float, default=1.0, doc="highest weight of the adaptive bonus")
entropy_step = Setting(
    "grpo.entropy_coef_delta", float, default=0.005, doc="how much the adaptive weight moves in a step"
)
off_policy = Setting(
    "grpo.off_policy_threshold", float, default=None, nullable=True,
    doc="leave out bad completions whose policy moved further than this; null keeps all",
)  # fmt: skip
kl_correction = Setting(
    "grpo.kl_correction",
    bool,
    default=False,
    doc="weigh the KL penalty by the ratio, so that it is unbiased off-policy",
)
head_fp32 = Bool("grpo.head_fp32", doc="compute the output head in float32")

correction = Bool("grpo.correction", doc="correct for vLLM's probabilities, which differ from the trained model's")
correction_mode = Enum(
    "grpo.correction_mode",
    ("sequence_mask", "sequence_truncate", "token_mask", "token_truncate"),
    doc="mask or truncate, whole completions or single tokens, whose ratio leaves the bounds",
)
correction_max = Setting(
    "grpo.correction_max", float, default=3.0, nullable=True, minimum=0.0, doc="largest ratio; null has no upper bound"
)
correction_min = Setting(
    "grpo.correction_min",
    float,
    default=None,
    nullable=True,
    minimum=0.0,
    doc="smallest ratio; null has no lower bound",
)

CORRECTION = (correction, correction_mode, correction_max, correction_min)
ADAPTIVE = (entropy_target, entropy_min, entropy_max, entropy_step)
OWN = (
    loss, generations, own.eval_generations, beta, own.iterations, epsilon, epsilon_high, delta, level, scale,
    own.truncated, quantile, entropy, adaptive, off_policy, kl_correction, head_fp32, own.shuffle, own.dropout,
)  # fmt: skip
