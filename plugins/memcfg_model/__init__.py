"""The model and its tokenizer: a small one built on the spot, or one from a folder or from the hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memcfg import ALWAYS, Check, Default, Enum, Fact, Forbid, Option, Plugin, Setting, key, only_when
from memcfg_model.facts import no_decoder, preset_depth, saved_depth
from memcfg_model.presets import PRESETS
from memcfg_model.types import MODEL_TYPES

source = Enum(
    "model.source",
    ("tiny", "hub", "shape"),
    open=True,
    pivotal=True,
    doc="where the model comes from: tiny (built from its configuration, untrained), hub (a folder or a hub id), shape "
    "(of a published configuration, untrained: to predict and to measure)",
)
preset = Setting(
    "model.preset", str, nullable=True, values=(None, *PRESETS), doc="the published model whose shape `shape` has"
)
path = Setting("model.path", str, nullable=True, doc="folder of a saved model, or its id on the hub")
dtype = Enum(
    "model.dtype",
    ("float32", "bfloat16", "float16", "auto"),
    doc="dtype of the weights; auto is the dtype that they were saved in",
)
remote = Setting(
    "model.trust_remote_code", bool, default=False, doc="run the Python code that comes with the model's weights"
)
hidden = Setting("model.hidden", int, default=128, minimum=8, doc="width of the tiny model")
layers = Setting("model.layers", int, default=2, minimum=1, doc="layers of the tiny model")
heads = Setting("model.heads", int, default=4, minimum=1, doc="attention heads of the tiny model")
kv_heads = Setting("model.kv_heads", int, default=2, minimum=1, doc="key and value heads of the tiny model")
intermediate = Setting(
    "model.intermediate", int, default=None, nullable=True, minimum=1,
    doc="width of the tiny model's feed-forward layers; null means three times `model.hidden`",
)  # fmt: skip
tied = Setting("model.tied", bool, default=False, doc="share the tiny model's embeddings with its output head")
type_ = Fact(
    "model.type", probe="memcfg_model.facts:model_type", learn="memcfg_model.facts:fetched_type", values=MODEL_TYPES,
    doc="architecture as the model's configuration names it; other for one that no rule knows",
)  # fmt: skip

dropout = Fact(
    "model.attention_dropout", probe="memcfg_model.facts:attention_dropout", learn="memcfg_model.facts:fetched_dropout",
    doc="whether the model's configuration gives its attention a dropout above 0",
)  # fmt: skip


def _path_given(values: Mapping[str, Any]) -> str | None:
    return (
        "`model.source=hub` needs a model: add `model.path=FOLDER` or `model.path=ORGANISATION/NAME`"
        if values["model.path"] is None
        else None
    )


def _preset_given(values: Mapping[str, Any]) -> str | None:
    known = ", ".join(f"`{name}`" for name in PRESETS)
    return None if values["model.preset"] else f"`model.source=shape` needs `model.preset=NAME`; names are {known}"


def _heads_divide(values: Mapping[str, Any]) -> str | None:
    width, count, kv = (values[k] for k in ("model.hidden", "model.heads", "model.kv_heads"))
    if width % (2 * count):
        return (
            f"`model.hidden` ({width}) is not a multiple of twice `model.heads` ({count}): a head needs an even width"
        )
    if count % kv:
        return f"`model.heads` ({count}) is not a multiple of `model.kv_heads` ({kv})"
    return None


def _deep_enough(told: str, depth: Callable[[Any], int | None]) -> Callable[[Mapping[str, Any]], str | None]:
    def test(values: Mapping[str, Any]) -> str | None:
        every, most = values["checkpointing.every"], depth(values[told])
        if most is None or every <= most:
            return None
        return f"`checkpointing.every` ({every}) is more than the model has layers ({most})"

    return test


_DEPTHS: tuple[tuple[str, Option, Callable[[Any], int | None]], ...] = (
    ("tiny", layers, int), ("shape", preset, preset_depth), ("hub", path, saved_depth),
)  # fmt: skip
"""How the depth of each source's model is known before it is loaded: the option that tells it, and how."""


plugin = Plugin(
    name="model",
    doc="the model and its tokenizer",
    options=[source, path, preset, dtype, remote, hidden, layers, heads, kv_heads, intermediate, tied, type_, dropout],
    rules=[
        Default(source, "tiny", id="model.source.default", because="a small untrained model needs no download"),
        Default(path, None, id="model.path.default", because="no model was named"),
        Check([path], _path_given, id="model.path.hub", when=source == "hub", because="there is no default model"),
        Check(
            [path], lambda values: no_decoder(values["model.path"]), id="model.path.decoder", when=source == "hub",
            because="training predicts each token from those before it",
        ),
        Default(preset, None, id="model.preset.default", because="no published model was named"),
        Check(
            [preset], _preset_given, id="model.preset.shape", when=source == "shape", because="a shape has to be somebody's"
        ),
        Check(
            [hidden, heads, kv_heads], _heads_divide, id="model.heads.divide", when=source == "tiny",
            because="heads share the width of the model evenly",
        ),
        *(
            Check(
                [option, key("checkpointing.every")], _deep_enough(option.key, depth), id=f"model.layers.every_{name}",
                when=(source == name) & (key("checkpointing.mode") != "none"),
                because="it counts the model's layers",
            )
            for name, option, depth in _DEPTHS
        ),
        *only_when(source == "hub", path, remote, because="the tiny model is built on the spot; a saved one needs `model=hub`"),
        *only_when(source == "shape", preset, because="only `model=shape` takes its shape from a preset"),
        *only_when(
            source == "tiny", hidden, layers, heads, kv_heads, intermediate, tied,
            because="a saved model has the shape it was saved with",
        ),
        Default(
            dtype, "bfloat16", id="model.dtype.gpu", when=(key("device.type") == "cuda") & (key("device.capability") >= 80),
            because="this GPU multiplies bfloat16 at full rate, and weights take half the memory",
        ),
        Default(dtype, "float32", id="model.dtype.default", because="it is exact everywhere"),
        Forbid(
            (dtype == "auto") & source.isin("tiny", "shape"), id="model.dtype.tiny", suggest=["model.dtype=float32"],
            because="`auto` is the dtype that weights were saved in, and this model never was",
        ),
    ],
    provides={"model.source": ("tiny", "hub", "shape")},
    groups={"model": "model and tokenizer"},
    hooks="memcfg_model.hooks",
    active=ALWAYS,
    allowed={
        "conflict-after-one-choice model.dtype=auto": "`auto` asks for saved weights, and which ones only the user can say"
    },
)  # fmt: skip
