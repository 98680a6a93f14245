"""Feed-forward layers and norms computed over pieces of the sequence: the wide middle of the former and the float32
copies of the latter never exist whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Axis, Check, Default, Enum, Plugin, Setting, only_when

mode = Enum("mlp.mode", ("whole", "tiled"), doc="the whole sequence at once, or piece by piece")
tiles = Setting(
    "mlp.tiles", int, default=None, nullable=True, minimum=1, unit="pieces",
    doc="pieces of a sequence; null makes pieces as long as the model is wide",
)  # fmt: skip


def _fits(values: Mapping[str, Any]) -> str | None:
    pieces, length = values["mlp.tiles"], values["truncation.max_length"]
    if pieces is None or length is None or pieces <= length:
        return None
    return (
        f"`mlp.tiles` ({pieces}) is more than the tokens of the longest sequence (`truncation.max_length` = {length})"
    )


plugin = Plugin(
    name="mlp",
    doc="computes feed-forward layers and norms piece by piece",
    options=[mode, tiles],
    rules=[
        Default(mode, "whole", id="mlp.mode.default", because="pieces save memory only in long sequences"),
        Check(
            [tiles, "truncation.max_length"], _fits, when=mode == "tiled", id="mlp.tiles.length",
            because="a piece has at least one token",
        ),
        *only_when(mode == "tiled", tiles, because="the sequence is not cut into pieces"),
    ],
    axes=[Axis("mlp.mode", ("whole", "tiled"))],
    groups={"mlp": "how feed-forward layers are computed"},
    hooks="memcfg_mlp.hooks",
    active=mode == "tiled",
)  # fmt: skip
