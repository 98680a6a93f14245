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

NO_SDPA = (
    "Transformers offers no `sdpa` for this architecture: its scores get a soft cap, a sink or a bias of their own"
)

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
            because=NO_SDPA,
        ),
        Forbid(
            model.isin(*EAGER) & (implementation == "sdpa"),
            id="attention.sdpa.architecture",
            because=NO_SDPA,
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
            because="in this architecture documents that share a row reach each other whatever the attention does: through "
            "a convolution or a recurrence, or because distances are counted over the whole row",
            suggest=["padding_free.enabled=false"],
        ),
    ],
    provides={"attention.implementation": ("sdpa", "eager"), "attention.separation": ("rows",)},
    groups={"attention": "attention kernel"},
    hooks="memcfg_attention.hooks",
)
