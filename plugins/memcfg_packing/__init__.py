"""Packing: several documents in one row of `truncation.max_length` tokens, so that little of a batch is padding.

    packed = memcfg_packing.pack(dataset, 2048, "bfd_split")

`pack` is loaded when it is first used, so that importing this module stays light.
"""

from __future__ import annotations

from typing import Any

from memcfg import Advise, Bool, Default, Enum, Forbid, Force, Ignored, Int, Plugin, RenameValue, key

strategy = Enum("packing.strategy", ("bfd", "bfd_split", "wrapped", "none"), doc="how documents share a row")
evaluation = Bool("packing.eval", doc="whether evaluation rows are packed too")
buffer = Int(
    "packing.buffer", minimum=1, unit="documents",
    doc="how many documents of a streaming data set are packed at a time",
)  # fmt: skip

max_length = key("truncation.max_length")
mode = key("truncation.mode")
trainer = key("trainer.name")
padding_free = key("padding_free.enabled")
best_fit = strategy.isin("bfd", "bfd_split")
on = strategy.isin("bfd", "bfd_split", "wrapped")
held_rows = key("data.source").isin("stdlib", "jsonl", "parquet", "hub") & key("data.streaming").off

plugin = Plugin(
    name="packing",
    doc="lays several documents into one row",
    options=[strategy, evaluation, buffer],
    rules=[
        Default(strategy, "none", id="packing.strategy.default", because="rows hold one document unless packing is chosen"),
        RenameValue(
            strategy, "bfd-requeue", "bfd_split", id="packing.strategy.bfd_requeue",
            because="`bfd-requeue` was the old name of `bfd_split`",
        ),
        Default(evaluation, True, id="packing.eval.default", when=on,
                because="evaluation sees rows of the same shape as training"),
        Ignored(evaluation, id="packing.eval.off", when=strategy == "none", except_values=(False,),
                because="evaluation rows are packed only where training rows are"),
        Default(buffer, 10_000, id="packing.buffer.default", when=on & ~held_rows,
                because="ten thousand documents fill rows as well as any number, and few documents fit in memory"),
        Ignored(buffer, id="packing.buffer.held", when=on & held_rows,
                because="the data set is no stream: all of its lengths are known, and packed in one pass"),
        Ignored(buffer, id="packing.buffer.off", when=strategy == "none", because="nothing is packed"),
        Force(padding_free, True, id="packing.padding_free.forced", when=best_fit, on_user="override",
              because="best-fit rows hold documents that must not see each other"),
        Forbid(on & max_length.null, id="packing.max_length.needed",
               because="a packed row needs a length to fill",
               suggest=["truncation.max_length=1024", "packing.strategy=none"]),
        Forbid(on & ~(trainer == "sft"), id="packing.trainer.sft_only",
               because="only supervised fine-tuning takes rows of several documents",
               suggest=["packing.strategy=none"]),
        Ignored(mode, id="packing.truncation.nothing_cut", when=strategy.isin("bfd_split", "wrapped")
                & evaluation.on,
                because="this packing cuts nothing off: long documents are continued in other rows"),
        Advise("documents that share a row see each other under `packing.strategy=wrapped` without "
               "`padding_free.enabled=true`", id="packing.wrapped.mixed",
               when=(strategy == "wrapped") & ~padding_free.on, level="warning",
               because="wrapped packing cuts one stream of all documents into blocks"),
    ],
    groups={"packing": "how documents share a row"},
    provides={"packing.strategy": ("bfd", "bfd_split", "wrapped")},
    commands={"lengths": "memcfg_packing.lengths.command:main"},
    hooks="memcfg_packing.hooks",
    active=on,
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """`pack`, loaded with numpy, Arrow and datasets when it is asked for."""
    if name == "pack":
        from memcfg_packing.packer import pack

        return pack
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
