"""Published models by their shape: what decides memory and time, as their public configurations state it. No weights."""

from __future__ import annotations

from typing import Any, Final

Shape = dict[str, Any]


def _shape(
    kind: str, hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool,
    **more: Any,
) -> Shape:  # fmt: skip
    return {
        "model_type": kind, "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocabulary,
        "tie_word_embeddings": tied, "head_dim": hidden // heads, "max_position_embeddings": 131_072, **more,
    }  # fmt: skip


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int, tied: bool) -> Shape:
    return _shape("qwen3", hidden, intermediate, layers, heads, 8, 151_936, tied, head_dim=128)


def _qwen2(
    hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool
) -> Shape:
    return _shape("qwen2", hidden, intermediate, layers, heads, kv_heads, vocabulary, tied)


def _llama(
    hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool
) -> Shape:
    return _shape("llama", hidden, intermediate, layers, heads, kv_heads, vocabulary, tied)


def _gemma3(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, head: int, window: int) -> Shape:
    vocabulary = 262_144 if window == 512 else 262_208
    kinds = ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(layers)]
    return _shape(
        "gemma3_text", hidden, intermediate, layers, heads, kv_heads, vocabulary, True, head_dim=head,
        sliding_window=window, layer_types=kinds, hidden_activation="gelu_pytorch_tanh",
    )  # fmt: skip


PRESETS: Final[dict[str, Shape]] = {
    "gemma3-270m": _gemma3(640, 2048, 18, 4, 1, 256, 512),
    "gemma3-1b": _gemma3(1152, 6912, 26, 4, 1, 256, 512),
    "gemma3-4b": _gemma3(2560, 10_240, 34, 8, 4, 256, 1024),
    "gemma3-12b": _gemma3(3840, 15_360, 48, 16, 8, 256, 1024),
    "gemma3-27b": _gemma3(5376, 21_504, 62, 32, 16, 128, 1024),
    "llama3-1b": _llama(2048, 8192, 16, 32, 8, 128_256, True),
    "llama3-3b": _llama(3072, 8192, 28, 24, 8, 128_256, True),
    "llama3-8b": _llama(4096, 14_336, 32, 32, 8, 128_256, False),
    "llama3-70b": _llama(8192, 28_672, 80, 64, 8, 128_256, False),
    "llama3-405b": _llama(16_384, 53_248, 126, 128, 8, 128_256, False),
    "mixtral-8x7b": _shape(
        "mixtral",
        4096,
        14_336,
        32,
        32,
        8,
        32_000,
        False,
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=None,
    ),
    "qwen3-30b-a3b": _shape(
        "qwen3_moe",
        2048,
        6144,
        48,
        32,
        4,
        151_936,
        False,
        head_dim=128,
        moe_intermediate_size=768,
        num_experts=128,
        num_experts_per_tok=8,
    ),
    "mistral-7b": _shape("mistral", 4096, 14_336, 32, 32, 8, 32_768, False, sliding_window=None),
    "olmo2-1b": _shape("olmo2", 2048, 8192, 16, 16, 16, 100_352, False),
    "olmo2-7b": _shape("olmo2", 4096, 11_008, 32, 32, 32, 100_352, False),
    "phi4-14b": _shape("phi3", 5120, 17_920, 40, 40, 10, 100_352, False, pad_token_id=0),
    "qwen2.5-0.5b": _qwen2(896, 4864, 24, 14, 2, 151_936, True),
    "qwen2.5-1.5b": _qwen2(1536, 8960, 28, 12, 2, 151_936, True),
    "qwen2.5-3b": _qwen2(2048, 11_008, 36, 16, 2, 151_936, True),
    "qwen2.5-7b": _qwen2(3584, 18_944, 28, 28, 4, 152_064, False),
    "qwen2.5-14b": _qwen2(5120, 13_824, 48, 40, 8, 152_064, False),
    "qwen2.5-32b": _qwen2(5120, 27_648, 64, 40, 8, 152_064, False),
    "qwen2.5-72b": _qwen2(8192, 29_568, 80, 64, 8, 152_064, False),
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, True),
    "qwen3-1.7b": _qwen3(2048, 6144, 28, 16, True),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, True),
    "qwen3-8b": _qwen3(4096, 12_288, 36, 32, False),
    "qwen3-14b": _qwen3(5120, 17_408, 40, 40, False),
    "qwen3-32b": _qwen3(5120, 25_600, 64, 64, False),
    "smollm2-135m": _llama(576, 1536, 30, 9, 3, 49_152, True),
    "smollm2-360m": _llama(960, 2560, 32, 15, 5, 49_152, True),
    "smollm2-1.7b": _llama(2048, 8192, 24, 32, 32, 49_152, True),
}
