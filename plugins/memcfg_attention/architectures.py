"""What is known of architectures by their model type, as far as it matters to documents that share a row.

Nothing here is trusted alone: a run whose documents share rows shows on its first batch that they do not see each other.
"""

EAGER = ("gemma2", "gpt_oss", "vaultgemma")
"""Types whose attention scores get a soft cap or a sink, which `sdpa` does not compute."""

MASKED = ("gpt_oss", "opt")
"""Types that build their masks without looking at position ids: restarting positions do not keep documents apart, a mask
of our own does."""

READS_PADDING = ("bloom", "falcon", "mpt", "opt")
"""Types that read the 2-D mask for more than masking (positions, distances): they need it wherever there is padding."""

STATEFUL = (
    "bamba", "bloom", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba", "kimi_linear", "lfm2", "lfm2_moe", "mamba",
    "mamba2", "minimax", "nemotron_h", "olmo_hybrid", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text",
    "qwen3_next", "recurrent_gemma", "rwkv", "xlstm", "zamba", "zamba2",
)  # fmt: skip
"""Types that carry something from one position to the next outside attention, or count distances over the whole row."""
