"""What is known of architectures by their model type, as far as it matters to documents that share a row.

Measured on small models of each type: the logits of documents in one row against those of each document alone. Nothing
here is trusted by itself: a run whose documents share rows shows on its first batch that they do not see each other.
"""

EAGER = (
    "bloom", "cpmant", "deepseek_v4", "falcon_mamba", "flint", "gemma2", "gpt_neox_japanese", "gpt_oss", "granite_swa",
    "granitemoe_swa", "inkling2_loop_text", "mamba", "mamba2", "mpt", "openai-gpt", "rwkv", "vaultgemma", "xglm", "xlstm",
)  # fmt: skip
"""Types without `sdpa` in Transformers: their scores get a soft cap, a sink or a bias that it does not compute."""

MASKED = ("afmoe", "biogpt", "gpt_oss", "mpt", "opt", "xglm")
"""Types that build their masks without looking at position ids: restarting positions do not keep documents apart, a mask
of our own does."""

STATEFUL = (
    "bailing_hybrid", "bamba", "bloom", "cpmant", "falcon_h1", "falcon_mamba", "granitemoehybrid", "inkling2_loop_text",
    "inkling2_text", "inkling_text", "jamba", "kimi_linear", "lfm2", "lfm2_moe", "lfm3", "mamba", "mamba2", "minimax",
    "nemotron_h", "olmo_hybrid", "openai-gpt", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next",
    "recurrent_gemma", "rwkv", "xlstm", "zamba", "zamba2", "zaya",
)  # fmt: skip
"""Types that carry something from one position to the next outside attention (a convolution, a recurrence), count
distances over the whole row, or take no mask but their own: documents that share a row reach each other."""
