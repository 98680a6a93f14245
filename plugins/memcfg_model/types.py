"""The model types that rules may name: decoder-only language models of Transformers, by the `model_type` of their
configuration. Kept as a list because importing Transformers to ask it takes seconds."""

from memcfg.heads import CAPPED, DIVIDED, MULTIPLIED, PLAIN, UNKNOWN

OTHER = "other"
"""What the fact says of every other model type."""

MODEL_TYPES: tuple[str, ...] = (*sorted({*PLAIN, *MULTIPLIED, *DIVIDED, *CAPPED, *UNKNOWN}), OTHER)
