"""Which architectures' output heads are known, and what each does to its logits.

A head that is not known is refused, not guessed: a scale or a cap that is missed trains on the wrong loss in silence.
What is known is held against the model's own logits when a run is built, because a new release of Transformers may change
a head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from memcfg import Problem, RunError
from memcfg.engine.forward import causal_model, model_logits
from memcfg_loss.transform import HeadTransform

PLAIN = frozenset(
    [
        "afmoe",
        "apertus",
        "arcee",
        "biogpt",
        "bitnet",
        "bloom",
        "codegen",
        "cwm",
        "deepseek_v2",
        "deepseek_v3",
        "diffllama",
        "doge",
        "dots1",
        "ernie4_5",
        "ernie4_5_moe",
        "exaone4",
        "falcon",
        "flex_olmo",
        "gemma",
        "glm",
        "glm4",
        "glm4_moe",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gpt_oss",
        "gptj",
        "helium",
        "hunyuan_v1_dense",
        "internlm3",
        "jetmoe",
        "lfm2",
        "lfm2_moe",
        "llama",
        "llama4",
        "llama4_text",
        "minimax",
        "ministral",
        "ministral3",
        "mistral",
        "mixtral",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
        "olmoe",
        "opt",
        "persimmon",
        "phi",
        "phi3",
        "phimoe",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_moe",
        "qwen3_next",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
    ]
)
"""Model types whose logits are `hidden @ weight.T + bias` and nothing else."""

MULTIPLIED = {
    "cohere": "logit_scale",
    "cohere2": "logit_scale",
    "cohere2_moe": "logit_scale",
    "falcon_h1": "lm_head_multiplier",
}
"""Model type -> the setting of its configuration by which logits are multiplied."""

DIVIDED = dict.fromkeys(("granite", "granitemoe", "granitemoehybrid", "granitemoeshared", "minicpm3"), "logits_scaling")
"""Model type -> the setting of its configuration by which logits are divided."""

CAPPED = dict.fromkeys(
    ("gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "nanochat", "vaultgemma"),
    "final_logit_softcapping",
)
"""Model type -> the setting of its configuration that bounds logits."""

_READERS: tuple[tuple[dict[str, str], Callable[[float], HeadTransform]], ...] = (
    (MULTIPLIED, lambda value: HeadTransform(scale=value)),
    (DIVIDED, lambda value: HeadTransform(scale=1.0 / value)),
    (CAPPED, lambda value: HeadTransform(softcap=value)),
)

PLAIN_PATH = "loss.type=nll loss.kernel=full  # the model's own logits, whole"


def transform_of(model: torch.nn.Module) -> HeadTransform:
    """What the model does to its logits, by its model type. Raises `RunError` for a type that is not known."""
    config: Any = causal_model(model).config
    if config.model_type in PLAIN:
        return HeadTransform()
    for table, read in _READERS:
        if config.model_type in table:
            value = getattr(config.get_text_config(), table[config.model_type], None)
            return HeadTransform() if value is None else read(float(value))
    text = f"what the output head of model type `{config.model_type}` does to its logits is not known"
    raise RunError(Problem(text, key="loss.kernel", fix=PLAIN_PATH))


def output_head(model: torch.nn.Module) -> torch.nn.Linear:
    """The linear layer that makes the logits. Raises `RunError` where it is anything else."""
    head = causal_model(model).get_output_embeddings()  # type: ignore[operator]
    if type(head) is not torch.nn.Linear:
        text = f"the output head is a `{type(head).__name__}`, whose product the kernel does not know"
        raise RunError(Problem(text, key="loss.kernel", fix=PLAIN_PATH))
    return head


def prove(model: torch.nn.Module, transform: HeadTransform) -> None:
    """Hold the formula against the model's own logits of two random hidden states. Raises `RunError` where they differ.

    Says nothing of weights that are not there (on `meta`, or held by other ranks)."""
    head = output_head(model)
    if head.weight.is_meta or head.weight.numel() != head.out_features * head.in_features:
        return
    noise = torch.randn(1, 2, head.in_features, generator=torch.Generator().manual_seed(0))
    hidden = noise.to(head.weight)
    with torch.no_grad():
        own = model_logits(model, hidden).float()
        mine = transform.apply_(head(hidden).float())
    if not torch.allclose(mine, own, rtol=0.02, atol=0.02 * float(own.abs().max())):
        text = f"`{type(causal_model(model)).__name__}` does more to its logits than the kernel knows ({transform.describe()})"
        raise RunError(Problem(text, key="loss.kernel", fix=PLAIN_PATH))
