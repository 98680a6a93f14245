"""Parameter-efficient fine-tuning: small adapters are trained and the model stays frozen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memcfg import Advise, Axis, Bool, Check, Default, Enum, Forbid, Force, NotYet, Plugin, Setting, key, only_when

WEIGHTS = ("lora", "adalora", "loha", "lokr", "oft", "vera", "ia3")
"""Methods that change weights of the model's own layers."""
PROMPTS = ("prompt", "prefix", "p_tuning")
"""Methods that put trained virtual tokens before each row."""
MERGED = WEIGHTS
"""Methods whose change can be added to the weights."""
HEADS = ("lm_head", "embed_out", "output")
"""What output heads are called."""

method = Enum(
    "peft.method", ("none", *WEIGHTS, *PROMPTS), open=True, doc="the kind of adapter; none trains the whole model"
)
rank = Setting("peft.rank", int, default=16, minimum=1, doc="rank of the adapter's matrices")
alpha = Setting("peft.alpha", int, default=32, minimum=1, doc="scale of the adapter, divided by its rank")
dropout = Setting("peft.dropout", float, default=0.05, minimum=0.0, maximum=1.0, doc="dropout before the adapter")
targets = Setting(
    "peft.targets", (list, str), default=None, nullable=True,
    doc="layers to adapt: names, a pattern or `all-linear`; null is peft's own choice for the architecture",
)  # fmt: skip
head = Bool("peft.head", doc="adapt the output head as well")
saved = Setting(
    "peft.modules_to_save", list, default=None, nullable=True, doc="layers to train whole and save with the adapter"
)
rslora = Setting("peft.rslora", bool, default=False, doc="divide the scale by the rank's square root")
dora = Bool("peft.dora", doc="train the magnitude of each weight apart from its direction")
tokens = Setting("peft.virtual_tokens", int, default=20, minimum=1, unit="tokens", doc="trained tokens before each row")
dtype = Enum("peft.dtype", ("float32", "bfloat16", "base"), doc="dtype of the adapter; base is the model's")
merge = Bool("peft.merge", doc="save the whole model with the adapter merged in, instead of the adapter alone")
config = Setting(
    "peft.config", dict, default={}, doc="further fields of peft's own configuration, by their names there"
)

adapts = method != "none"
quantized = key("quantization.mode").isin("nf4", "fp4", "int8")
zero3 = key("distributed.strategy") == "zero3"
sharded = key("distributed.strategy").isin("fsdp2", "zero3")


def _head_by_name(values: Mapping[str, Any]) -> str | None:
    given = values["peft.targets"]
    named = [name for name in (given if isinstance(given, list) else [given]) if name in HEADS]
    return f"`{named[0]}` is the output head: leave it out and add `peft.head=true`" if named else None


OWNED = {
    "r": "peft.rank", "init_r": "peft.rank", "lora_alpha": "peft.alpha", "alpha": "peft.alpha", "lora_dropout": "peft.dropout",
    "module_dropout": "peft.dropout", "vera_dropout": "peft.dropout", "target_modules": "peft.targets",
    "modules_to_save": "peft.modules_to_save", "use_rslora": "peft.rslora", "use_dora": "peft.dora",
    "num_virtual_tokens": "peft.virtual_tokens",
}  # fmt: skip
"""Fields of peft's configurations that options of their own set."""
FIXED = ("task_type", "inference_mode", "peft_type")
"""Fields that follow from training a language model."""


def _owned(values: Mapping[str, Any]) -> str | None:
    given = values["peft.config"] or {}
    for name in given:
        if name in OWNED:
            return f"`{name}` is what `{OWNED[name]}` says: leave it out and set that"
        if name in FIXED:
            return f"`{name}` is set for training: leave it out"
    return None


def _whole_dropout(values: Mapping[str, Any]) -> str | None:
    return "a dropout of 1 leaves nothing of the adapter" if values["peft.dropout"] == 1 else None


def _no_target(values: Mapping[str, Any]) -> str | None:
    return "an empty list adapts no layer: leave it out" if values["peft.targets"] in ([], "") else None


def _pattern(values: Mapping[str, Any]) -> str | None:
    given = values["peft.targets"]
    if not isinstance(given, str):
        return None
    try:
        re.compile(given)
    except re.error as error:
        return f"`{given}` is no pattern: {error}"
    return None


def _named(values: Mapping[str, Any]) -> str | None:
    for key_ in ("peft.targets", "peft.modules_to_save"):
        given = values[key_]
        wrong = [name for name in given if not isinstance(name, str) or not name] if isinstance(given, list) else []
        if wrong:
            return f"`{key_}` lists `{wrong[0]!r}`, which is no name of a layer"
    return None


def _both(values: Mapping[str, Any]) -> str | None:
    adapted, whole = values["peft.targets"], values["peft.modules_to_save"] or []
    both = [name for name in (adapted if isinstance(adapted, list) else []) if name in whole]
    return f"`{both[0]}` is in both `peft.targets` and `peft.modules_to_save`: leave it in one" if both else None


plugin = Plugin(
    name="peft",
    doc="trains a small adapter on a frozen model",
    options=[method, rank, alpha, dropout, targets, head, saved, rslora, dora, tokens, dtype, merge, config],
    rules=[
        Default(method, "none", id="peft.method.default", because="the whole model is trained"),
        Default(
            head, False, when=adapts, id="peft.head.default", because="an adapter on the head is as long as the vocabulary"
        ),
        Default(dora, False, when=method == "lora", id="peft.dora.default", because="plain LoRA has no magnitudes"),
        Default(
            dtype, "float32", when=adapts, id="peft.dtype.default", because="small updates would be rounded away in less"
        ),
        Default(
            dtype, "bfloat16", when=adapts & quantized, id="peft.dtype.quantized",
            because="the layers around quantised weights compute in bfloat16",
        ),
        Force(
            dtype, "base", when=adapts & zero3 & ~quantized, id="peft.dtype.zero3",
            because="ZeRO-3 shards parameters of one dtype together",
        ),
        Default(
            merge, False, when=adapts, id="peft.merge.default",
            because="an adapter is small, and its base model is where it was",
        ),
        Default(
            merge, True, id="peft.merge.tiny",
            when=method.isin(*MERGED) & (key("model.source") == "tiny") & ~quantized & ~sharded,
            because="the tiny model is not saved anywhere else",
        ),
        Forbid(
            merge.on & quantized, id="peft.merge.quantized",
            because="the sum would have to be rounded to the quantised weights' few bits again",
            suggest=["peft.merge=false", "quantization.mode=none"],
        ),
        Forbid(
            merge.on & method.isin(*PROMPTS), id="peft.merge.prompt",
            because="virtual tokens have no weights of the model to be merged into", suggest=["peft.merge=false"],
        ),
        Advise(
            "adapters in float32 on a bfloat16 model keep about 1.6 times the activations of bfloat16 adapters where "
            "layers are not computed again", id="peft.dtype.activations",
            when=adapts & (dtype == "float32") & (key("model.dtype") == "bfloat16") & (key("checkpointing.mode") == "none"),
        ),
        Forbid(
            head.on & adapts & (method != "lora"), id="peft.head.lora",
            because="fused losses take the head's weight with its change added, which only plain LoRA can give",
            suggest=["peft.head=false", "peft.method=lora"],
        ),
        Forbid(
            head.on & dora.on, id="peft.head.dora",
            because="fused losses take the head's weight with its change added, which DoRA rescales row by row",
            suggest=["peft.head=false", "peft.dora=false"],
        ),
        Forbid(
            dora.on & (key("quantization.mode") == "int8"), id="peft.dora.int8",
            because="DoRA reads the weight in every step, and bitsandbytes gives up an int8 weight's scales after the first",
            suggest=["quantization.mode=nf4", "peft.dora=false"],
        ),
        Forbid(
            method.isin(*PROMPTS) & key("padding_free.enabled").on, id="peft.prompt.padding_free",
            because="virtual tokens are put before each row, so only its first document would see them",
            suggest=["packing.strategy=none", "padding_free.enabled=false", "peft.method=lora"],
        ),
        Default(
            key("checkpointing.mode"), "none", when=method == "prefix", id="peft.prefix.checkpointing_off",
            because="its virtual tokens lie in the attention's cache, which checkpointing would have to fill twice",
        ),
        Forbid(
            (method == "prefix") & (key("checkpointing.mode") != "none"), id="peft.prefix.checkpointing",
            because="its virtual tokens lie in the attention's cache, which checkpointing would have to fill twice",
            suggest=["checkpointing.mode=none", "peft.method=prompt"],
        ),
        Check(
            [targets], _head_by_name, when=adapts, id="peft.targets.head",
            because="whether the head is adapted decides which losses can run",
        ),
        Check(
            [targets], _no_target, when=adapts, id="peft.targets.none", because="an adapter lies beside layers of the model",
        ),
        Check(
            [targets], _pattern, when=adapts, id="peft.targets.pattern",
            because="a text is held against the names of the model's layers",
        ),
        Check(
            [targets, saved], _named, when=adapts, id="peft.targets.names",
            because="layers are found by their names",
        ),
        Check(
            [targets, saved], _both, when=adapts, id="peft.targets.saved",
            because="a layer that is trained whole has no adapter beside it",
        ),
        Check(
            [dropout], _whole_dropout, when=adapts, id="peft.dropout.whole",
            because="what is dropped out has no gradient",
        ),
        Check(
            [config], _owned, when=adapts, id="peft.config.owned",
            because="the plan would say one thing and peft do another",
        ),
        *only_when(adapts, head, saved, dtype, merge, config, because="there is no adapter when the whole model is trained"),
        *only_when(method.isin("lora", "adalora", "loha", "lokr", "oft", "vera"), rank, because="this adapter has no rank"),
        *only_when(method.isin("lora", "adalora", "loha", "lokr"), alpha, because="this adapter has no scale"),
        *only_when(method.isin("lora", "adalora", "oft", "vera"), dropout, because="this adapter has no dropout"),
        *only_when(method.isin(*WEIGHTS), targets, because="only adapters on layers have targets"),
        *only_when(method == "lora", rslora, dora, because="only `peft.method=lora` reads it"),
        *only_when(method.isin(*PROMPTS), tokens, because="only trained prompts have virtual tokens"),
    ],
    axes=[Axis("peft.method", ("none", "lora"), {"lora": "only a low-rank change is learned"})],
    groups={"peft": "which adapter is trained"},
    not_yet=[NotYet(method == "adalora", "moving its ranks about while it trains is not written yet")],
    hooks="memcfg_peft.hooks",
    active=adapts,
)  # fmt: skip
