"""No padding between documents: several of them share a row, and attention keeps them apart."""

from memcfg import Bool, Default, Force, Plugin, Require, key

enabled = Bool(
    "padding_free.enabled",
    doc="let documents share rows instead of padding each to the longest; attention keeps them apart",
)
separation = key("attention.separation")

plugin = Plugin(
    name="padding_free",
    doc="documents share rows without padding between them",
    options=[enabled],
    rules=[
        Default(enabled, False, id="padding_free.default", because="every document gets a row of its own unless asked"),
        Require(
            separation.isin("rows", "flat"),
            when=enabled.on,
            id="padding_free.attention.separates",
            because="documents that share a row must not attend to each other, and only some attention implementations "
            "keep them apart",
        ),
        Force(
            "batch.layout",
            "rows",
            when=enabled.on & (separation == "rows"),
            id="padding_free.layout.rows",
            because="attention with masks costs the square of a row's width, so rows stay as short as the longest document",
        ),
        Force(
            "batch.layout",
            "flat",
            when=enabled.on & (separation == "flat"),
            id="padding_free.layout.flat",
            because="attention over cumulative lengths needs no rows",
        ),
    ],
    provides={"batch.layout": ("rows", "flat")},
    groups={"padding_free": "documents share rows"},
    hooks="memcfg_padding_free.hooks",
    active=enabled.on,
    allowed={
        "dead-rule padding_free.attention.separates": "it guards against attention of third parties that mixes documents"
    },
)
