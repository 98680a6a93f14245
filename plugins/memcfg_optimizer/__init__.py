"""Optimizers: what moves the parameters once a step's gradients are there."""

from __future__ import annotations

from memcfg import Default, Enum, Plugin, Setting, key

name = Enum(
    "optimizer.name", ("adamw",), open=True, doc="the optimizer: adamw (AdamW, states in the parameters' dtype)"
)
weight_decay = Setting(
    "optimizer.weight_decay", float, default=0.0, minimum=0.0,
    doc="decoupled weight decay of matrices; vectors (norms, biases) are not decayed",
)  # fmt: skip
betas = Setting("optimizer.betas", list, default=[0.9, 0.999], doc="decay of the first and second moment")
eps = Setting("optimizer.eps", float, default=1e-8, minimum=0.0, doc="added to the root of the second moment")
fused = Setting("optimizer.fused", bool, doc="one kernel for all parameters")

plugin = Plugin(
    name="optimizer",
    doc="optimizers",
    options=[name, weight_decay, betas, eps, fused],
    rules=[
        Default(
            name, "adamw", id="optimizer.name.default",
            because="AdamW is what fine-tuning recipes are tuned for",
        ),
        Default(
            fused, True, id="optimizer.fused.cuda", when=key("device.type") == "cuda",
            because="on a GPU one kernel replaces several for every parameter",
        ),
        Default(
            fused, False, id="optimizer.fused.cpu", when=key("device.type") == "cpu",
            because="on a CPU it gains nothing",
        ),
    ],
    groups={"optimizer": "what moves the parameters"},
    hooks="memcfg_optimizer.hooks",
)  # fmt: skip
