"""Which architectures' output heads are known, and what each does to its logits.

A head that is not known is refused, not guessed: a scale or a cap that is missed trains on the wrong loss in silence.
What is known is held against the model's own logits when a run is built, because a new release of Transformers may change
a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from memcfg import Problem, RunError
from memcfg.engine.forward import causal_model, model_logits
from memcfg.head.layer import PLAIN_PATH, output_head
from memcfg.head.transform import HeadTransform

PLAIN = frozenset(
    [
        "afmoe",
        "apertus",
        "apertus1p5_text",
        "arcee",
        "aria_text",
        "axk1",
        "axk2",
        "bailing_hybrid",
        "bamba",
        "biogpt",
        "bitnet",
        "bloom",
        "codegen",
        "cpmant",
        "ctrl",
        "cwm",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_v4",
        "diffllama",
        "doge",
        "ernie4_5",
        "ernie4_5_moe",
        "exaone",
        "exaone4",
        "exaone_moe",
        "falcon",
        "falcon_mamba",
        "flex_olmo",
        "flint",
        "gemma",
        "gemma3",
        "gemma4",
        "gemma4_unified",
        "glm",
        "glm4",
        "glm4_moe",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "gpt-sw3",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gpt_neox_japanese",
        "gpt_oss",
        "gptj",
        "helium",
        "hrm_text",
        "hunyuan_v1_dense",
        "hy_v3",
        "hy_v4",
        "internlm3",
        "iquestcoder",
        "jais2",
        "jamba",
        "jetmoe",
        "kimi_linear",
        "kolibri1",
        "laguna",
        "lara_mini",
        "lfm2",
        "lfm2_moe",
        "lfm3",
        "llama",
        "llama4",
        "llama4_text",
        "longcat_flash",
        "mamba",
        "mamba2",
        "mellum",
        "mimo_v2_flash",
        "minimax",
        "minimax_m2",
        "minimax_m3_vl_text",
        "ministral",
        "ministral3",
        "mistral",
        "mixtral",
        "mpt",
        "nemotron",
        "nemotron_h",
        "olmo",
        "olmo2",
        "olmo3",
        "olmo_hybrid",
        "olmoe",
        "openai-gpt",
        "opt",
        "persimmon",
        "phi",
        "phi3",
        "phimoe",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_5",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_moe",
        "qwen3_next",
        "qwen4_exp_text",
        "rwkv",
        "sarvam_mla",
        "sarvam_moe",
        "seed_oss",
        "smollm3",
        "solar_open",
        "stablelm",
        "starcoder2",
        "xglm",
        "youtu",
        "zaya",
    ]
)
"""Model types whose logits are `hidden @ weight.T + bias` and nothing else."""

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

_READERS: tuple[tuple[dict[str, str], Callable[[float], HeadTransform]], ...] = (
    (MULTIPLIED, lambda value: HeadTransform(scale=value)),
    (DIVIDED, lambda value: HeadTransform(scale=1.0 / value)),
    (CAPPED, lambda value: HeadTransform(softcap=value)),
)


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


@contextmanager
def _without_dropout(module: torch.nn.Module) -> Iterator[None]:
    """An adapter on the head may drop elements: not while its product is looked at."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def prove(model: torch.nn.Module, transform: HeadTransform) -> None:
    """Hold the formula against the model's own logits of two random hidden states. Raises `RunError` where they differ.

    Says nothing of weights that are not there (on `meta`, or held by other ranks)."""
    head, module = output_head(model), causal_model(model).get_output_embeddings()  # type: ignore[operator]
    if head.weight.is_meta or head.weight.numel() != head.out_features * head.in_features:
        return
    noise = torch.randn(1, 2, head.in_features, generator=torch.Generator().manual_seed(0))
    hidden = noise.to(head.weight)
    with torch.no_grad(), _without_dropout(module):
        own = model_logits(model, hidden).float()
        mine = transform.apply_(module(hidden).float())
    if not torch.allclose(mine, own, rtol=0.02, atol=0.02 * float(own.abs().max())):
        text = f"`{type(causal_model(model)).__name__}` does more to its logits than the kernel knows ({transform.describe()})"
        raise RunError(Problem(text, key="loss.kernel", fix=PLAIN_PATH))
