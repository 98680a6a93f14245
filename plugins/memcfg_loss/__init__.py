"""Losses over supervised tokens, and the head that computes them without a tensor of tokens x vocabulary."""

from memcfg import Default, Enum, Forbid, Ignored, Plugin, Setting, key, only_when

type_ = Enum(
    "loss.type",
    ("chunked_nll", "nll", "dft"),
    open=True,
    doc="loss of each supervised token: chunked_nll, nll (the same value over whole logits), dft (weighted by its own probability)",
)
kernel = Enum(
    "loss.kernel",
    ("torch", "full"),
    open=True,
    doc="how the head computes it: torch (chunk by chunk, gradients in the forward), full (whole logits)",
)
chunk = Setting(
    "loss.chunk_mib",
    int,
    default=64,
    minimum=1,
    unit="MiB",
    doc="size of the float32 logits that are alive at once",
)

plugin = Plugin(
    name="loss",
    doc="token losses and output heads",
    options=[type_, kernel, chunk],
    rules=[
        Default(
            type_,
            "chunked_nll",
            when=key("trainer.name") == "sft",
            id="loss.type.default",
            because="it is exact and never holds the logits of a whole micro-batch",
        ),
        Default(kernel, "torch", id="loss.kernel.default", because="it is exact and works on every device"),
        Default(
            kernel,
            "full",
            when=type_ == "nll",
            id="loss.kernel.plain",
            because="`nll` is the plain path over whole logits",
        ),
        Forbid(
            (type_ == "chunked_nll") & (kernel == "full"),
            id="loss.chunked.full",
            because="`chunked_nll` never builds the whole logits, which is all that the kernel `full` does",
            suggest=["loss.kernel=torch", "loss.type=nll"],
        ),
        Ignored(
            chunk,
            when=kernel == "full",
            id="loss.chunk.whole",
            because="the kernel `full` builds the logits at once, not in chunks",
        ),
        *only_when(key("trainer.name") == "sft", type_, because="other trainers bring a loss of their own"),
    ],
    provides={"loss.type": ("chunked_nll", "nll", "dft"), "loss.kernel": ("torch", "full")},
    groups={"loss": "loss of each supervised token"},
    hooks="memcfg_loss.hooks",
)
