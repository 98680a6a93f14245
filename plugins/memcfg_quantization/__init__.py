"""Weights stored in four or eight bits while an adapter is trained on them (bitsandbytes)."""

from __future__ import annotations

from memcfg import Axis, Bool, Default, Enum, Fact, Forbid, Plugin, Require, Setting, key, only_when

QLORA = "https://arxiv.org/abs/2305.14314"

mode = Enum("quantization.mode", ("none", "nf4", "fp4", "int8"), doc="how the frozen weights are stored")
teacher = Enum("quantization.teacher", ("none", "nf4", "fp4", "int8"), doc="how a teacher's weights are stored")
double = Bool("quantization.double", doc="quantise the scales of four-bit weights as well")
compute = Setting(
    "quantization.compute_dtype", str, default=None, nullable=True, values=("float32", "bfloat16", "float16"),
    doc="dtype of products with four-bit weights; null is `model.dtype`",
)  # fmt: skip
storage = Setting(
    "quantization.storage", str, default=None, nullable=True, values=("uint8", "bfloat16", "float16", "float32"),
    doc="dtype that four-bit weights are packed in; null is bitsandbytes' own, uint8",
)  # fmt: skip
installed = Fact(
    "quantization.installed", probe="memcfg_quantization.facts:installed", doc="whether bitsandbytes is installed"
)

on = mode != "none"
taught = key("trainer.name") == "gkd"
four_bit = mode.isin("nf4", "fp4") | teacher.isin("nf4", "fp4")
strategy = key("distributed.strategy")

plugin = Plugin(
    name="quantization",
    doc="stores the frozen weights in four or eight bits",
    options=[mode, teacher, double, compute, storage, installed],
    rules=[
        Default(mode, "none", id="quantization.mode.default", because="weights are kept in the model's dtype"),
        Default(double, False, when=four_bit, id="quantization.double.default", because="it saves 0.4 bits a weight for time"),
        Default(
            storage, "bfloat16", when=mode.isin("nf4", "fp4") & (strategy == "fsdp2"), id="quantization.storage.fsdp2",
            because="FSDP shards parameters of one dtype together, and cannot shard packed bytes with others",
            ref="https://huggingface.co/docs/bitsandbytes/fsdp_qlora",
        ),
        Default(
            teacher, "none", when=taught, id="quantization.teacher.default", because="the teacher is taken as it was saved"
        ),
        Require(
            installed.on, when=taught & (teacher != "none"), id="quantization.teacher.installed",
            because="the bitsandbytes package is not installed (`pip install bitsandbytes`)", suggest=["quantization.teacher=none"],
        ),
        Require(
            installed.on, when=on, id="quantization.package.installed", because="the bitsandbytes package is not installed (`pip install bitsandbytes`)",
            suggest=["quantization.mode=none"],
        ),
        Forbid(
            on & (key("peft.method") == "none"), id="quantization.mode.adapter",
            because="quantised weights cannot be trained, and there is no adapter to train instead",
            suggest=["peft.method=lora", "quantization.mode=none"], ref=QLORA,
        ),
        Forbid(
            (mode == "int8") & strategy.isin("fsdp2", "zero3"), id="quantization.int8.sharded",
            because="eight-bit weights carry their scales outside the parameter, which shards would lose",
            suggest=["quantization.mode=nf4", "distributed.strategy=ddp"],
        ),
        *only_when(taught, teacher, because="only distillation has a teacher"),
        *only_when(four_bit, double, compute, storage, because="only four-bit weights have it"),
    ],
    axes=[Axis("quantization.mode", ("none", "int8", "nf4"), {"int8": "8-bit weights", "nf4": "4-bit weights"})],
    groups={"quantization": "how the frozen weights are stored"},
    hooks="memcfg_quantization.hooks",
    active=on | (taught & (teacher != "none")),
    allowed={
        f"conflict-after-one-choice quantization.mode={mode}": "which adapter is trained only the user can say"
        for mode in ("nf4", "fp4", "int8")
    },
)  # fmt: skip
