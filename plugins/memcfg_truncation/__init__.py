"""Cuts documents that are longer than `truncation.max_length`. Packing does its own cutting, so nothing is cut before it."""

from __future__ import annotations

from memcfg import Default, Enum, Ignored, Int, Plugin, key

max_length = Int(
    "truncation.max_length", nullable=True, minimum=1, unit="tokens",
    doc="the longest document, or the length of a packed row; null cuts nothing",
)  # fmt: skip
mode = Enum("truncation.mode", ("keep_start", "keep_end"), doc="which end of a document that is too long is kept")

packs = key("packing.strategy").isin("bfd", "bfd_split", "wrapped")
eval_unpacked = packs & key("packing.eval").off

plugin = Plugin(
    name="truncation",
    doc="cuts documents to a length",
    options=[max_length, mode],
    rules=[
        Default(
            max_length, 1024, id="truncation.max_length.default",
            because="1,024 tokens is the length that trainers of this kind assume unless told otherwise",
        ),
        Default(
            mode, "keep_start", id="truncation.mode.default", because="a document is read from its start",
        ),
        Ignored(
            mode, id="truncation.mode.no_limit", when=max_length.null,
            because="nothing is cut without a `truncation.max_length`",
        ),
    ],
    groups={"truncation": "how documents that are too long are cut"},
    hooks="memcfg_truncation.hooks",
    active=~max_length.null & (~packs | eval_unpacked),
)  # fmt: skip
