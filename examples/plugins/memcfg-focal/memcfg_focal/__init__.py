"""Focal loss for memcfg: `python -m memcfg loss=focal focal.gamma=1.5`.

This module is what memcfg imports to know the plugin, so it stays light; torch is imported by `memcfg_focal.hooks`, and
only in runs that chose `loss=focal`.
"""

from memcfg import Ignored, Plugin, Setting, key

gamma = Setting(
    "focal.gamma", float, default=2.0, minimum=0.0, doc="how much less a well-predicted token counts; 0 is plain nll"
)

plugin = Plugin(
    name="focal",
    doc="focal loss: tokens that the model already predicts well count less",
    options=[gamma],
    rules=[
        Ignored(
            gamma,
            when=key("loss.type") != "focal",
            id="focal.gamma.unused",
            because="only the focal loss has a gamma",
            ref="https://arxiv.org/abs/1708.02002",
        ),
    ],
    provides={"loss.type": ("focal",)},
    hooks="memcfg_focal.hooks",
    conf="pkg://memcfg_focal.conf",
)
