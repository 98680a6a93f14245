"""Which attention runs, and how it keeps documents apart that share a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Bool, Check, Default, Enum, Fact, Forbid, Force, Plugin, Setting, key, only_when
from memcfg_attention.architectures import EAGER, STATEFUL

MASKING = ("sdpa", "eager", "flex")
FLAT = ("varlen", "flash2", "flash3", "kernels")

implementation = Enum(
    "attention.implementation",
    MASKING + FLAT,
    open=True,
    doc="attention kernel: sdpa (torch's own), eager (plain matrix products), varlen (torch's own over documents of any "
    "length), flash2 and flash3 (their packages), kernels (one of the hub's, `attention.repository`), flex (compiled block "
    "masks)",
)
separation = Enum(
    "attention.separation",
    ("rows", "flat"),
    role="derived",
    open=True,
    doc="how attention keeps documents apart that share a row: rows (masks), flat (cumulative lengths); unset: it cannot",
)
cudnn = Bool("attention.cudnn", doc="let `sdpa` use cuDNN's kernel on a GPU")
repository = Setting(
    "attention.repository", str, default=None, nullable=True,
    doc="the hub's repository of compiled attention kernels for `kernels`, such as kernels-community/flash-attn2",
)  # fmt: skip
trust = Setting(
    "attention.trust_remote_code", bool, default=False,
    doc="download and run the code of `attention.repository`, which memcfg has not seen",
)  # fmt: skip
kernels = Fact("attention.kernels", probe="memcfg_attention.facts:kernels", doc="the package kernels is installed")
flash2 = Fact("attention.flash2", probe="memcfg_attention.facts:flash2", doc="the package flash-attn is installed")
flash3 = Fact("attention.flash3", probe="memcfg_attention.facts:flash3", doc="FlashAttention 3 is installed")

device, capability, dtype = key("device.type"), key("device.capability"), key("model.dtype")
model, padding_free = key("model.type"), key("padding_free.enabled")
gpu = device == "cuda"

drops = key("model.attention_dropout").on & (key("trainer.dropout") != "disabled")
"""The model's attention drops weights in training."""

NO_SDPA = (
    "Transformers offers no `sdpa` for this architecture: its scores get a soft cap, a sink or a bias of their own"
)
long_rows = (capability >= 90) & (key("truncation.max_length") >= 32_768)
shares = gpu & (capability >= 80) & padding_free.on & ~model.isin(*EAGER)
"""Where documents share rows and a kernel over cumulative lengths could serve."""


def _named(values: Mapping[str, Any]) -> str | None:
    name = values["attention.repository"]
    if name is None:
        return "no repository is named: add `attention.repository=kernels-community/flash-attn2`, or another"
    owner, _, rest = name.partition("/")
    return None if owner and rest and "/" not in rest else f"`{name}` is no repository of the hub: write `owner/name`"


def _trusted(values: Mapping[str, Any]) -> str | None:
    if values["attention.trust_remote_code"]:
        return None
    name = values["attention.repository"]
    return f"`{name}` is downloaded and run: if you trust it, add `attention.trust_remote_code=true`"


plugin = Plugin(
    name="attention",
    doc="attention kernels with documents kept apart",
    options=[implementation, separation, cudnn, repository, trust, flash2, flash3, kernels],
    rules=[
        Default(
            implementation, "sdpa", id="attention.implementation.default",
            because="torch's own attention works on every device and keeps documents apart with masks",
        ),
        Default(
            implementation, "eager", when=model.isin(*EAGER), id="attention.implementation.eager", because=NO_SDPA,
        ),
        Default(
            implementation, "varlen", "sdpa", when=shares, id="attention.implementation.varlen",
            because="on a GPU, documents that share a row cost least without masks: each attends within its own length",
        ),
        Default(
            implementation, "sdpa", when=shares & drops, id="attention.implementation.dropout",
            because="the model's attention has a dropout, which torch's kernel over lengths leaves out",
        ),
        Default(
            implementation, "flash2", "varlen", "sdpa", when=shares & flash2.on, id="attention.implementation.flash2",
            supersedes=["attention.implementation.dropout"],
            because="flash-attn is installed and takes documents by their lengths",
        ),
        Default(
            implementation, "flash3", "varlen", "sdpa", when=shares & flash3.on & (capability >= 90) & ~drops,
            id="attention.implementation.flash3", supersedes=["attention.implementation.flash2"],
            because="FlashAttention 3 is installed and is the fastest that takes documents by their lengths",
        ),
        Forbid(
            model.isin(*EAGER) & implementation.isin("sdpa", "flex", *FLAT), id="attention.sdpa.architecture",
            because=NO_SDPA, suggest=["attention.implementation=eager"],
        ),
        Forbid(
            implementation.isin("flex", *FLAT) & ~gpu, id="attention.kernel.gpu",
            because="its kernels need a GPU", suggest=["attention.implementation=sdpa"],
        ),
        Forbid(
            implementation.isin(*FLAT) & gpu & (capability < 80), id="attention.kernel.capability",
            because="its kernels need compute capability 8.0", suggest=["attention.implementation=sdpa"],
        ),
        Forbid(
            (implementation == "flash3") & gpu & (capability < 90), id="attention.flash3.capability",
            because="FlashAttention 3 needs compute capability 9.0", suggest=["attention.implementation=varlen"],
        ),
        Forbid(
            (implementation == "flash2") & flash2.off, id="attention.flash2.installed",
            because="the package `flash-attn` is not installed", suggest=["attention.implementation=varlen"],
        ),
        Forbid(
            (implementation == "flash3") & flash3.off, id="attention.flash3.installed",
            because="FlashAttention 3 is not installed", suggest=["attention.implementation=varlen"],
        ),
        Forbid(
            (implementation == "kernels") & kernels.off, id="attention.kernels.installed",
            because="the package `kernels` is not installed", suggest=["attention.implementation=varlen"],
        ),
        Check([implementation, repository], _named, when=implementation == "kernels", id="attention.kernels.named",
              because="the hub has many repositories of kernels"),
        Check([implementation, repository, trust], _trusted, when=implementation == "kernels", id="attention.kernels.trusted",
              because="a kernel of the hub is code"),
        *only_when(implementation == "kernels", repository, trust,
                   because="only `attention.implementation=kernels` takes code from the hub"),
        Forbid(
            implementation.isin(*FLAT) & (dtype == "float32"), id="attention.kernel.dtype",
            because="its kernels take 16-bit numbers only",
            suggest=["model.dtype=bfloat16", "attention.implementation=sdpa"],
        ),
        Forbid(
            drops & implementation.isin("varlen", "flash3", "flex"), id="attention.kernel.dropout",
            because="its kernels drop no attention weights, and the model was made to be trained with a dropout",
            suggest=["attention.implementation=sdpa"],
        ),
        Forbid(
            drops & (implementation == "kernels"), id="attention.kernels.dropout",
            because="kernels of the hub may leave the model's attention dropout out, and none says so",
            suggest=["attention.implementation=sdpa"],
        ),
        Force(
            separation, "rows", when=implementation.isin(*MASKING), id="attention.separation.masks",
            because="a mask keeps documents apart in a row",
        ),
        Force(
            separation, "flat", when=implementation.isin(*FLAT), id="attention.separation.lengths",
            because="cumulative lengths keep documents apart, and no mask is needed",
        ),
        Forbid(
            model.isin(*STATEFUL) & padding_free.on, id="attention.separation.state",
            because="in this architecture documents that share a row reach each other whatever the attention does: through "
            "a convolution or a recurrence, or because distances are counted over the whole row",
            suggest=["padding_free.enabled=false"],
        ),
        Default(
            cudnn, False, when=gpu & (implementation == "sdpa") & ~long_rows, id="attention.cudnn.default",
            because="cuDNN plans anew for every shape it meets, and the shapes of fine-tuning batches keep changing",
        ),
        Default(
            cudnn, True, when=gpu & (implementation == "sdpa") & long_rows, id="attention.cudnn.long",
            because="in rows of 32,768 tokens and more its faster kernel saves more than planning for their shapes costs",
        ),
        *only_when(gpu & (implementation == "sdpa"), cudnn, because="only `sdpa` on a GPU can use cuDNN's kernel"),
    ],
    provides={
        "attention.implementation": MASKING + FLAT,
        "attention.separation": ("rows", "flat"),
    },
    groups={"attention": "attention kernel"},
    hooks="memcfg_attention.hooks",
    allowed={
        f"conflict-after-one-choice attention.implementation={name}": "a trainer that switches dropout off allows it"
        for name in ("varlen", "flash3", "flex", "kernels")
    },
)  # fmt: skip
