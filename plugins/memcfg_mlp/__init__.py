"""The feed-forward layers computed over pieces of the sequence, so that their wide middle never exists whole."""

from __future__ import annotations

from memcfg import Default, Enum, NotYet, Plugin, Setting, only_when

mode = Enum("mlp.mode", ("whole", "tiled"), doc="the whole sequence at once, or piece by piece")
tiles = Setting(
    "mlp.tiles", int, default=None, nullable=True, minimum=1, unit="pieces",
    doc="pieces of a sequence; null makes pieces as long as the model is wide",
)  # fmt: skip

plugin = Plugin(
    name="mlp",
    doc="computes feed-forward layers piece by piece",
    options=[mode, tiles],
    rules=[
        Default(mode, "whole", id="mlp.mode.default", because="pieces save memory only in long sequences"),
        *only_when(mode == "tiled", tiles, because="the sequence is not cut into pieces"),
    ],
    groups={"mlp": "how feed-forward layers are computed"},
    active=mode == "tiled",
    not_yet=[NotYet(mode == "tiled", "tiled feed-forward layers are not written yet")],
)  # fmt: skip
