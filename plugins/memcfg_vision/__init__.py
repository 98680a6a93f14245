"""Rows with images: which techniques cannot take them."""

from __future__ import annotations

from memcfg import Fact, Forbid, NotYet, Plugin, key

images = Fact(
    "vision.data", probe="memcfg_vision.facts:data", learn="memcfg_vision.facts:columns",
    doc="whether the rows hold images",
)  # fmt: skip
trainer = key("trainer.name")
length = key("truncation.max_length")

plugin = Plugin(
    name="vision",
    doc="keeps techniques made for text off rows with images",
    options=[images],
    rules=[
        Forbid(
            images.on & key("packing.strategy").isin("bfd", "bfd_split", "wrapped"), id="vision.packing.text",
            because="a row's images would be separated from its text", suggest=["packing.strategy=none"],
        ),
        Forbid(
            images.on & key("padding_free.enabled").on, id="vision.padding_free.text",
            because="images are batched by row, and a flat batch has no rows", suggest=["padding_free.enabled=false"],
        ),
        Forbid(
            images.on & (key("truncation.mode") == "keep_end") & (length >= 1), id="vision.truncation.keep_end",
            because="cutting the start of a row would cut its images' tokens",
            suggest=["truncation.mode=keep_start", "truncation.max_length=null"],
        ),
        Forbid(
            images.on & (key("reference.mode") == "precompute"), id="vision.reference.precompute",
            because="images are prepared batch by batch, after the log-probabilities would be needed",
            suggest=["reference.mode=live"],
        ),
    ],
    active=images.on,
    not_yet=[NotYet(images.on, "this version reads text only")],
    allowed={
        f"conflict-after-one-choice {choice}": "what to give up for whole images, length or its end, only the user can say"
        for choice in ("trainer.name=online_dpo", "truncation.mode=keep_end")
    },
)  # fmt: skip
