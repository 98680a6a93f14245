"""Which attention runs, and how it keeps documents apart that share a row."""

from memcfg import Default, Enum, Forbid, Force, Plugin, key
from memcfg_attention.architectures import EAGER, STATEFUL

implementation = Enum(
    "attention.implementation",
    ("sdpa", "eager"),
    open=True,
    doc="attention kernel: sdpa (torch's own), eager (plain matrix products)",
)
separation = Enum(
    "attention.separation",
    ("rows", "flat"),
    role="derived",
    open=True,
    doc="how attention keeps documents apart that share a row: rows (masks), flat (cumulative lengths); unset: it cannot",
)
model = key("model.type")

plugin = Plugin(
    name="attention",
    doc="attention kernels with documents kept apart",
    options=[implementation, separation],
    rules=[
        Default(
            implementation,
            "sdpa",
            id="attention.implementation.default",
            because="torch's own attention works on every device and keeps documents apart with masks",
        ),
        Default(
            implementation,
            "eager",
            when=model.isin(*EAGER),
            id="attention.implementation.eager",
            because="this architecture changes its attention scores in a way that torch's own attention does not offer",
        ),
        Forbid(
            model.isin(*EAGER) & (implementation == "sdpa"),
            id="attention.sdpa.scores",
            because="this architecture changes its attention scores (a soft cap, a sink), and torch's own attention would "
            "leave that out without a word",
            suggest=["attention.implementation=eager"],
        ),
        Force(
            separation,
            "rows",
            when=implementation.isin("sdpa", "eager"),
            id="attention.separation.masks",
            because="a mask keeps documents apart in a row",
        ),
        Forbid(
            model.isin(*STATEFUL) & key("padding_free.enabled").on,
            id="attention.separation.state",
            because="this architecture carries state from one position to the next (convolutions, recurrences, distances "
            "counted over the row), which no attention mask cuts at the end of a document",
            suggest=["padding_free.enabled=false"],
        ),
    ],
    provides={"attention.implementation": ("sdpa", "eager"), "attention.separation": ("rows",)},
    groups={"attention": "attention kernel"},
    hooks="memcfg_attention.hooks",
)
