"""What a saved model is, where it is no decoder of text with a causal head: told from its configuration, without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from memcfg_model.types import MODEL_TYPES

ENCODERS: Final = frozenset((
    "albert", "bert", "bert-generation", "big_bird", "camembert", "canine", "convbert", "data2vec-text", "deberta", "deberta-v2",
    "distilbert", "electra", "ernie", "esm", "esmc", "eurobert", "flaubert", "fnet", "funnel", "gte", "ibert",
    "jina_embeddings_v3", "longformer", "luke", "megatron-bert", "mobilebert", "modernbert", "mpnet", "mra", "neomme",
    "nomic_bert", "nystromformer", "openai_privacy_filter", "reformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert",
    "roformer", "splinter", "squeezebert", "ultrabert", "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod", "yoso",
))  # fmt: skip
"""Model types whose tokens see what follows them, unless their configuration says `is_decoder` or `causal`."""

ENCODER_DECODERS: Final = frozenset((
    "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "encoder-decoder", "fsmt", "led", "longt5", "m2m_100", "marian",
    "mbart", "mt5", "mvp", "nllb-moe", "pegasus", "pegasus_x", "plbart", "prophetnet", "switch_transformers", "t5", "t5gemma",
    "t5gemma2", "umt5",
))  # fmt: skip
"""Model types that read with one half and write with the other."""

INSIDE: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where configurations keep that of the text model inside."""
SENSES: Final = ("vision_config", "audio_config", "audio_encoder_config", "audio_encoder", "encoder_config", "visual")
"""Where configurations keep what looks and listens."""

INSTEAD: Final = "give a decoder of text, one that `AutoModelForCausalLM` loads, such as `Qwen/Qwen3-0.6B`"
ALONE: Final = "give a decoder of text alone, such as the one that it was made from"


def other_kind(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """What a model is by its configuration (what `config.json` holds) and what to use instead; None for a decoder of text,
    or where nothing says otherwise.

    Types are told by what they hold inside first, and by their names last: new ones come with every version."""
    kind = config.get("model_type")
    if kind in MODEL_TYPES or "AutoModelForCausalLM" in _own_code(config):
        return None
    named = f"a `{kind}` model"
    if inner := _inside(config):
        return f"{named} of more than text, around {inner}", ALONE
    if any(isinstance(config.get(name), Mapping) for name in SENSES):
        return f"{named} of more than text", ALONE
    if kind in ENCODER_DECODERS or config.get("is_encoder_decoder") is True:
        return f"{named}, an encoder with a decoder, which writes one text for another", INSTEAD
    if kind in ENCODERS and not (config.get("is_decoder") or config.get("causal")):
        return f"{named}, an encoder, whose tokens see the ones that they should predict", INSTEAD
    if isinstance(kind, str) and not any(name in config for name in ("vocab_size", "n_vocab", "num_embeddings")):
        return f"{named} without a vocabulary (`vocab_size`), so no language model", INSTEAD
    return None


def said(path: str, found: tuple[str, str]) -> str:
    """The finding about the model in `path` as one clause."""
    what, instead = found
    return f"`{path}` is {what}: {instead}"


def _own_code(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the code that comes with a model says it can be loaded as."""
    found = config.get("auto_map")
    return found if isinstance(found, Mapping) else {}


def _inside(config: Mapping[str, Any]) -> str | None:
    """The text model inside, in words."""
    inner = next((config[name] for name in INSIDE if isinstance(config.get(name), Mapping)), None)
    if inner is None:
        return None
    kind = inner.get("model_type")
    return f"a text model of type `{kind}`" if isinstance(kind, str) else "a text model"
