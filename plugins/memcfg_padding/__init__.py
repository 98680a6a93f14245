"""Rows of equal width: padding on the right, rounded up to a multiple on request."""

from memcfg import ALWAYS, Default, Enum, Force, Int, Plugin, key

multiple_of = Int(
    "padding.multiple_of",
    minimum=1,
    nullable=True,
    unit="tokens",
    doc="round the width of every micro-batch up to a multiple of this; null rounds nothing",
)
layout = Enum(
    "batch.layout",
    ("padded",),
    role="derived",
    open=True,
    doc="how documents become tensors: padded (one to a row), rows (several to a row, kept apart), flat (one long row)",
)

plugin = Plugin(
    name="padding",
    doc="one document to a row, padded to equal width",
    options=[multiple_of, layout],
    rules=[
        Default(multiple_of, None, id="padding.multiple_of.default", because="rounding only adds padding"),
        Force(
            layout,
            "padded",
            when=key("padding_free.enabled").off,
            id="padding.layout.padded",
            because="without padding-free each row of the data gets a row of its own",
        ),
    ],
    provides={"batch.layout": ("padded",)},
    groups={"padding": "width of micro-batches"},
    hooks="memcfg_padding.hooks",
    active=ALWAYS,
)
