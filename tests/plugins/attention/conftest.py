"""Small models of four architectures, under an attention implementation."""

from __future__ import annotations

from typing import Any, Final

import pytest

ARCHITECTURES: Final[dict[str, dict[str, Any]]] = {
    "llama": {},
    "qwen3": {"head_dim": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    "mistral": {"sliding_window": 4},
}


@pytest.fixture(params=list(ARCHITECTURES))
def architecture(request: pytest.FixtureRequest) -> Any:
    """Each of them in turn."""
    return request.param


@pytest.fixture
def attended():
    """`attended("llama", "sdpa", device="cuda")`: a model of 64 words with the same weights each time, and its attention."""
    import torch
    from memcfg_attention.hooks import memcfg_attention
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    from memcfg import Decision, Plan

    small = {
        "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0,
    }  # fmt: skip

    def build(kind: str, implementation: str, **where: Any) -> tuple[Any, Any]:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**(small | ARCHITECTURES[kind])))
        model = model.to(**where) if where else model
        return model, memcfg_attention(Plan({"attention.implementation": Decision(implementation, "you")}), model)

    return build
