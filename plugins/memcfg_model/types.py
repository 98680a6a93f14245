"""The model types that rules may name: decoder-only language models of Transformers, by the `model_type` of their
configuration. Kept as a list because importing Transformers to ask it takes seconds."""

from memcfg.heads import CAPPED, DIVIDED, MULTIPLIED, PLAIN

OTHER = "other"
"""What the fact says of every other model type."""

WITHOUT_HEAD = (
    "blt", "cohere_compass_text", "dbrx", "dory", "dots1", "dots3_note", "dots3_note_text", "emu3", "fuyu",
    "gemma3n", "gemma3n_text", "gemma4_assistant", "gemma4_unified_assistant", "hunyuan_v1_moe", "mllama",
    "modernbert-decoder", "moss_transcribe_diarize", "phi4_multimodal", "qwen3_5_moe", "qwen4_exp", "zamba",
    "zamba2",
)  # fmt: skip
"""Types whose output heads memcfg's kernels do not know."""

MODEL_TYPES: tuple[str, ...] = (*sorted({*PLAIN, *MULTIPLIED, *DIVIDED, *CAPPED, *WITHOUT_HEAD}), OTHER)
