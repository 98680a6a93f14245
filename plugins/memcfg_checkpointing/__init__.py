"""Activation checkpointing: layers are computed again in the backward pass instead of keeping what they computed."""

from __future__ import annotations

from memcfg import Axis, Bool, Default, Enum, Forbid, Ignored, Plugin, Setting, key

mode = Enum(
    "checkpointing.mode", ("full", "selective", "none"),
    doc="what each layer keeps for the backward pass: full (its input only), selective (what attention gives, too), "
    "none (everything)", free=True,
)  # fmt: skip
every = Setting(
    "checkpointing.every", int, default=1, minimum=1, unit="layers",
    doc="compute again one layer in so many; the others keep everything", free=True,
)  # fmt: skip
reentrant = Bool(
    "checkpointing.reentrant", doc="use autograd's older, re-entrant way of computing layers again", free=True
)

plugin = Plugin(
    name="checkpointing",
    doc="computes layers again instead of keeping their activations",
    options=[mode, every, reentrant],
    rules=[
        Default(
            mode, "full", id="checkpointing.mode.default",
            because="activations are the largest part of memory at long lengths, and a third more time frees them",
        ),
        Default(
            reentrant, False, id="checkpointing.reentrant.default",
            because="the newer way also works where a layer's inputs need no gradient",
        ),
        Forbid(
            (mode == "selective") & reentrant.on, id="checkpointing.selective.reentrant",
            because="the re-entrant way computes whole layers again and cannot keep a part of them",
            suggest=["checkpointing.reentrant=false", "checkpointing.mode=full"],
        ),
        Forbid(
            (mode == "selective") & (key("attention.implementation") == "eager"), id="checkpointing.selective.eager",
            because="eager attention is made of many operations, and no single one gives what could be kept",
            suggest=["attention.implementation=sdpa", "checkpointing.mode=full"],
        ),
        Forbid(
            reentrant.on & (key("run.on_oom") == "shrink"), id="checkpointing.reentrant.on_oom",
            because="the re-entrant way may give a parameter its gradient in parts, and a failed pass cannot be made up for",
            suggest=["checkpointing.reentrant=false", "run.on_oom=stop"],
        ),
        Ignored(
            every, id="checkpointing.every.off", when=mode == "none", except_values=(1,),
            because="no layer is computed again",
        ),
        Ignored(
            reentrant, id="checkpointing.reentrant.off", when=mode == "none", except_values=(False,),
            because="no layer is computed again",
        ),
    ],
    axes=[Axis("checkpointing.mode", ("none", "selective", "full"))],
    groups={"checkpointing": "what layers keep for the backward pass"},
    hooks="memcfg_checkpointing.hooks",
)  # fmt: skip
