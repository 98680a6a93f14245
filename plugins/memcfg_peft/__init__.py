"""Parameter-efficient fine-tuning: small adapters are trained and the model stays frozen."""

from __future__ import annotations

from memcfg import Advise, Axis, Bool, Check, Default, Enum, Forbid, Force, NotYet, Plugin, Setting, key, only_when
from memcfg_peft import checks

WEIGHTS = ("lora", "adalora", "loha", "lokr", "oft", "vera", "ia3")
"""Methods that change weights of the model's own layers."""
PROMPTS = ("prompt", "prefix", "p_tuning")
"""Methods that put trained virtual tokens before each row."""
MERGED = WEIGHTS
"""Methods whose change can be added to the weights."""

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
            method.isin("loha", "lokr") & key("quantization.mode").isin("nf4", "fp4"), id="peft.method.four_bit",
            because="peft gives its change the shape of the weights, which four-bit ones have only once they are unpacked",
            suggest=["peft.method=lora", "quantization.mode=int8"],
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
            [targets], checks.head_by_name, when=adapts, id="peft.targets.head",
            because="whether the head is adapted decides which losses can run",
        ),
        Check(
            [targets], checks.no_target, when=adapts, id="peft.targets.none", because="an adapter lies beside layers of the model",
        ),
        Check(
            [targets], checks.pattern, when=adapts, id="peft.targets.pattern",
            because="a text is held against the names of the model's layers",
        ),
        Check(
            [targets, saved], checks.named, when=adapts, id="peft.targets.names",
            because="layers are found by their names",
        ),
        Check(
            [targets, saved], checks.both, when=adapts, id="peft.targets.saved",
            because="a layer that is trained whole has no adapter beside it",
        ),
        Check(
            [dropout], checks.whole_dropout, when=adapts, id="peft.dropout.whole",
            because="what is dropped out has no gradient",
        ),
        Check(
            [config, method], checks.owned, when=adapts, id="peft.config.owned",
            because="the plan would say one thing and peft do another",
        ),
        Check(
            [config], checks.undone, when=adapts, id="peft.config.undone",
            because="it would change nothing, or something else than it says",
        ),
        Check(
            [config, key("reference.mode"), "reference.path"], checks.moves_the_model, when=adapts, id="peft.config.reference",
            because="the reference has to be the model before training",
        ),
        Check(
            [config, merge], checks.drawn, when=adapts & merge.off, id="peft.config.drawn",
            because="an adapter that is saved alone is laid over the model as it was loaded",
        ),
        *only_when(adapts, head, saved, dtype, merge, config, because="there is no adapter when the whole model is trained"),
        *only_when(method.isin("lora", "adalora", "loha", "lokr", "oft", "vera"), rank, because="this adapter has no rank"),
        *only_when(method.isin("lora", "adalora", "loha", "lokr"), alpha, because="this adapter has no scale"),
        *only_when(method.isin("lora", "adalora", "oft", "vera"), dropout, because="no dropout lies before this adapter"),
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
