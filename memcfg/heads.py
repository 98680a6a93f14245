"""What is known of the output heads of Transformers' architectures, by the `model_type` of their configuration.

Kept as lists because importing Transformers to ask it takes seconds. `memcfg.head` reads them, and holds them against the
model's own logits when a run is built."""

from __future__ import annotations

PLAIN = frozenset((
    "afmoe", "apertus", "apertus1p5_text", "arcee", "aria_text", "axk1", "axk2", "bailing_hybrid", "bamba", "biogpt",
    "bitnet", "bloom", "codegen", "cpmant", "ctrl", "cwm", "deepseek_v2", "deepseek_v3", "deepseek_v32",
    "deepseek_v4", "diffllama", "doge", "ernie4_5", "ernie4_5_moe", "exaone", "exaone4", "exaone_moe", "falcon",
    "falcon_mamba", "flex_olmo", "flint", "gemma", "gemma3", "gemma4", "gemma4_unified", "glm", "glm4", "glm4_moe",
    "glm4_moe_lite", "glm_moe_dsa", "gpt-sw3", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_neox_japanese",
    "gpt_oss", "gptj", "helium", "hrm_text", "hunyuan_v1_dense", "hy_v3", "hy_v4", "internlm3", "iquestcoder",
    "jais2", "jamba", "jetmoe", "kimi_linear", "kolibri1", "laguna", "lara_mini", "lfm2", "lfm2_moe", "lfm3",
    "llama", "llama4", "llama4_text", "longcat_flash", "mamba", "mamba2", "mellum", "mimo_v2_flash", "minimax",
    "minimax_m2", "minimax_m3_vl_text", "ministral", "ministral3", "mistral", "mixtral", "mpt", "nemotron",
    "nemotron_h", "olmo", "olmo2", "olmo3", "olmo_hybrid", "olmoe", "openai-gpt", "opt", "persimmon", "phi", "phi3",
    "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_5", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe",
    "qwen3_next", "qwen4_exp_text", "rwkv", "sarvam_mla", "sarvam_moe", "seed_oss", "smollm3", "solar_open",
    "stablelm", "starcoder2", "xglm", "youtu", "zaya",
))  # fmt: skip
"""Model types whose logits are `hidden @ weight.T + bias` and nothing else."""

VISION = frozenset((
    "glm4v", "idefics3", "internvl", "llava", "llava_next", "mistral3", "qwen2_5_vl", "qwen2_vl", "qwen3_vl",
    "smolvlm",
))  # fmt: skip
"""The same of models that look at images too."""

MULTIPLIED = {
    "cohere": "logit_scale",
    "cohere2": "logit_scale",
    "cohere2_moe": "logit_scale",
    "falcon_h1": "lm_head_multiplier",
    "hyperclovax": "logits_scaling",
}
"""Model type -> the setting of its configuration by which logits are multiplied."""

DIVIDED = {
    "granite": "logits_scaling",
    "granite_swa": "logits_scaling",
    "granitemoe": "logits_scaling",
    "granitemoe_swa": "logits_scaling",
    "granitemoehybrid": "logits_scaling",
    "granitemoeshared": "logits_scaling",
    "inkling_text": "logits_mup_width_multiplier",
    "minicpm3": "logits_scaling",
}
"""Model type -> the setting of its configuration by which logits are divided."""

CAPPED = {
    "beam": "final_logit_softcapping",
    "gemma2": "final_logit_softcapping",
    "gemma3_text": "final_logit_softcapping",
    "gemma4_text": "final_logit_softcapping",
    "gemma4_unified_text": "final_logit_softcapping",
    "inkling2_loop_text": "final_logit_softcapping",
    "inkling2_text": "final_logit_softcapping",
    "nanochat": "final_logit_softcapping",
    "recurrent_gemma": "logits_soft_cap",
    "vaultgemma": "final_logit_softcapping",
    "xlstm": "output_logit_soft_cap",
}
"""Model type -> the setting of its configuration that bounds logits."""

UNKNOWN = (
    "blt", "cohere_compass_text", "dbrx", "dory", "dots1", "dots3_note", "dots3_note_text", "emu3", "fuyu",
    "gemma3n", "gemma3n_text", "gemma4_assistant", "gemma4_unified_assistant", "hunyuan_v1_moe", "mllama",
    "modernbert-decoder", "moss_transcribe_diarize", "phi4_multimodal", "qwen3_5_moe", "qwen4_exp", "zamba",
    "zamba2",
)  # fmt: skip
"""Model types of which it is not known what they do to their logits."""
