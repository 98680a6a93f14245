"""Whether a model's attention drops weights in training, read off its configuration without loading anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

RATES: Final = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
"""What the rate of attention is called, in different architectures."""

RATES_OF: Final = {"emu3": ("dropout", "attention_dropout"), "mllama": ("dropout",)}
"""The same where the name says less: in these, `dropout` is the rate of attention."""

DEFAULTS: Final = frozenset((
    "biogpt", "emu3", "gpt-sw3", "gpt2", "gpt_bigcode", "gpt_neox_japanese", "openai-gpt", "seed_oss", "xglm",
))  # fmt: skip
"""Model types that drop attention weights unless their configuration says otherwise."""


def drops(config: Mapping[str, Any]) -> bool:
    """Whether a configuration (what `config.json` holds) has an attention dropout above zero."""
    kind = config.get("model_type")
    names = (*RATES, *RATES_OF.get(str(kind), ()))
    inner = (config.get("text_config"), config.get("attn_config"))
    parts = (config, *(part for part in inner if isinstance(part, Mapping)))
    stated = [part[name] for part in parts for name in names if name in part]
    rates = [rate for rate in stated if isinstance(rate, int | float)]
    return any(rate > 0 for rate in rates) if rates else kind in DEFAULTS
