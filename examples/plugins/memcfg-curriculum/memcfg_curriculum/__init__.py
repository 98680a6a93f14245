"""A curriculum by length for memcfg: `python -m memcfg curriculum=length run.steps=400 curriculum.rows=800`.

This module is what memcfg imports to know the plugin, so it stays light; `memcfg_curriculum.hooks` orders the rows, and is
imported only in runs that chose a curriculum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Check, Default, Enum, Forbid, Plugin, Setting, key, only_when

by = Enum("curriculum.by", ("none", "length"), doc="what training rows are ordered by, within each block of rows")
direction = Enum("curriculum.direction", ("short_first", "long_first"), doc="which documents come first")
rows = Setting(
    "curriculum.rows", int, default=None, nullable=True, minimum=2, unit="rows",
    doc="rows over which lengths move once from one end to the other, before it begins anew; null: an epoch",
)  # fmt: skip
stages = Setting(
    "curriculum.stages", int, default=8, minimum=2, doc="classes of length; within one, rows come in a random order"
)
on = by == "length"


def _block_is_seen(values: Mapping[str, Any]) -> str | None:
    """A run that ends within the first block would see documents from one end only."""
    block = values["curriculum.rows"]
    seen = values["run.steps"] * values["run.accumulation"] * values["run.batch_size"] * values["world.size"]
    if block is None or block <= seen:
        return None
    return f"the run sees {seen} rows, and `curriculum.rows={block}` would show it one end of the lengths only"


plugin = Plugin(
    name="curriculum",
    doc="orders the training rows by length: short documents first, or long ones",
    options=[by, direction, rows, stages],
    rules=[
        Default(by, "none", id="curriculum.by.default", because="rows come in a random order unless asked otherwise"),
        Default(
            direction, "short_first", id="curriculum.direction.default",
            because="a curriculum goes from what is easy to what is hard",
            ref="https://doi.org/10.1145/1553374.1553380",
        ),
        *only_when(on, direction, rows, stages, because="only `curriculum=length` orders rows"),
        Forbid(
            on & key("packing.strategy").isin("bfd", "bfd_split", "wrapped"), id="curriculum.packing",
            because="packed rows are all of one length", suggest=["packing.strategy=none", "curriculum.by=none"],
        ),
        Forbid(
            on & (key("batching.mode") == "tokens"), id="curriculum.batching",
            because="a budget of tokens puts rows of similar length together in an order of its own",
            suggest=["batching.mode=rows", "curriculum.by=none"],
        ),
        Forbid(
            on & key("data.streaming").on, id="curriculum.streaming",
            because="the rows of a stream are not all there to be ordered",
            suggest=["data.streaming=false", "curriculum.by=none"],
        ),
        Check(
            [by, rows, "run.steps", "run.accumulation", "run.batch_size", "world.size"], _block_is_seen, when=on,
            id="curriculum.rows.seen", because="a block has to be seen whole to be a curriculum",
        ),
    ],
    groups={"curriculum": "in which order rows are trained on"},
    hooks="memcfg_curriculum.hooks",
    conf="pkg://memcfg_curriculum.conf",
    active=on,
)  # fmt: skip
