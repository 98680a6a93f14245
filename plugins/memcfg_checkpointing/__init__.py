"""Activation checkpointing: layers are computed again in the backward pass instead of keeping what they computed."""

from __future__ import annotations

from memcfg import Bool, Default, Enum, Forbid, Ignored, NotYet, Plugin

mode = Enum(
    "checkpointing.mode", ("full", "selective", "none"),
    doc="what each layer keeps for the backward pass: full (its input only), selective (matrix products), none (everything)",
)  # fmt: skip
reentrant = Bool("checkpointing.reentrant", doc="use autograd's older, re-entrant way of computing layers again")

plugin = Plugin(
    name="checkpointing",
    doc="computes layers again instead of keeping their activations",
    options=[mode, reentrant],
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
        Ignored(
            reentrant, id="checkpointing.reentrant.off", when=mode == "none", except_values=(False,),
            because="no layer is computed again",
        ),
    ],
    not_yet=[NotYet(mode == "selective", because="only whole layers can be computed again so far")],
    groups={"checkpointing": "what layers keep for the backward pass"},
    hooks="memcfg_checkpointing.hooks",
)  # fmt: skip
