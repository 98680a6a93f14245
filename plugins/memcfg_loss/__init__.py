"""Losses over supervised tokens, and the head that computes them without a tensor of tokens x vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Check, Default, Enum, Fact, Forbid, Ignored, Plugin, Require, Setting, key, only_when
from memcfg.heads import UNKNOWN

type_ = Enum(
    "loss.type",
    ("chunked_nll", "nll", "dft"),
    open=True,
    doc="loss of each supervised token: chunked_nll, nll (the same value over whole logits), dft (weighted by its own probability)",
)
kernel = Enum(
    "loss.kernel",
    ("triton", "torch", "full"),
    open=True,
    doc="how the head computes it: triton or torch (chunk by chunk, gradients in the forward), full (whole logits)",
)
chunk = Setting(
    "loss.chunk_mib",
    int,
    nullable=True,
    minimum=1,
    unit="MiB",
    doc="size of the logits that are alive at once; null lets the Triton kernel choose",
)
smoothing = Setting(
    "loss.label_smoothing",
    float,
    default=0.0,
    minimum=0.0,
    maximum=1.0,
    doc="share of each target that is spread over the whole vocabulary",
)
z_loss = Setting(
    "loss.z_loss",
    float,
    default=0.0,
    minimum=0.0,
    doc="weight of the squared log-sum of the logits, which keeps them from drifting",
)
triton = Fact("loss.triton", probe="memcfg_loss.facts:triton", doc="whether the triton package is installed")
on_gpu = key("device.type") == "cuda"
own = kernel.isin("triton", "torch", "full")


def _known_to_others(values: Mapping[str, Any]) -> str | None:
    asked = [name for name in ("loss.label_smoothing", "loss.z_loss") if values[name]]
    return (
        f"`loss.kernel={values['loss.kernel']}` does not read `{asked[0]}`: add `loss.kernel=torch`" if asked else None
    )


plugin = Plugin(
    name="loss",
    doc="token losses and output heads",
    options=[type_, kernel, chunk, smoothing, z_loss, triton],
    rules=[
        Default(
            type_,
            "chunked_nll",
            "nll",
            when=key("trainer.name") == "sft",
            id="loss.type.default",
            because="it is exact and never holds the logits of a whole micro-batch",
        ),
        Default(kernel, "torch", id="loss.kernel.default", because="it is exact and works on every device"),
        Default(
            kernel,
            "triton",
            "torch",
            when=on_gpu,
            id="loss.kernel.gpu",
            because="it is exact and the fastest on a GPU: logits become gradients where they lie",
        ),
        Default(
            kernel,
            "full",
            when=type_ == "nll",
            id="loss.kernel.plain",
            because="`nll` is the plain path over whole logits",
            supersedes=["loss.kernel.gpu"],
        ),
        Require(
            on_gpu,
            when=kernel == "triton",
            id="loss.triton.gpu",
            because="Triton compiles for GPUs",
            suggest=["loss.kernel=torch"],
        ),
        Require(
            triton.on,
            when=kernel == "triton",
            id="loss.triton.installed",
            because="the triton package is not installed",
            suggest=["loss.kernel=torch"],
        ),
        Default(chunk, 64, id="loss.chunk.default", because="more saves no time on a CPU"),
        Default(
            chunk,
            512,
            when=on_gpu & (kernel == "torch"),
            id="loss.chunk.gpu",
            because="smaller products leave most of a GPU idle",
        ),
        Default(
            chunk,
            None,
            when=kernel == "triton",
            id="loss.chunk.suited",
            because="the size at which the products run at full rate follows from the head's own",
        ),
        Forbid(
            (type_ == "chunked_nll") & (kernel == "full"),
            id="loss.chunked.full",
            because="`chunked_nll` never builds the whole logits, which is all that the kernel `full` does",
            suggest=["loss.kernel=torch", "loss.type=nll"],
        ),
        Forbid(
            kernel.isin("triton", "torch") & key("model.type").isin(*UNKNOWN),
            id="loss.kernel.unknown_head",
            because="what this architecture's output head does to its logits is not known, and a missed scale or cap would "
            "train on another loss",
            suggest=["loss.kernel=full", "loss.type=nll"],
        ),
        Ignored(
            chunk,
            when=kernel == "full",
            id="loss.chunk.whole",
            because="the kernel `full` builds the logits at once, not in chunks",
        ),
        Check(
            [kernel, smoothing, z_loss],
            _known_to_others,
            when=~own,
            id="loss.shape.kernel",
            because="only memcfg's own kernels are given more than the target's log-probability",
        ),
        *only_when(
            type_.isin("chunked_nll", "nll"),
            smoothing,
            z_loss,
            because="only the negative log-likelihood is smoothed or bounded",
        ),
        *only_when(key("trainer.name") == "sft", type_, because="other trainers bring a loss of their own"),
    ],
    provides={"loss.type": ("chunked_nll", "nll", "dft"), "loss.kernel": ("triton", "torch", "full")},
    groups={"loss": "loss of each supervised token"},
    hooks="memcfg_loss.hooks",
)
