"""A small untrained model in the shape of Qwen3, with the tokenizer that is shipped beside this file."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

from memcfg_model.places import placed

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from memcfg import Plan

SPREAD = 0.06
"""Standard deviation of the weights. Transformers' 0.02 is made for wide models: at this width the model then spends most
of a short run on getting away from its start."""

POSITIONS = 32_768
"""Positions are rotations, not weights: a large number costs nothing."""


def tokenizer() -> PreTrainedTokenizerBase:
    """The shipped byte-pair tokenizer of 2,048 tokens."""
    with as_file(files("memcfg_model") / "assets" / "tokenizer") as folder:
        return AutoTokenizer.from_pretrained(folder)


def config(plan: Plan) -> Qwen3Config:
    """The configuration that the plan's `model.*` settings describe."""
    words, hidden, heads = tokenizer(), plan["model.hidden"], plan["model.heads"]
    return Qwen3Config(
        vocab_size=len(words),
        hidden_size=hidden,
        intermediate_size=plan.get("model.intermediate") or 3 * hidden,
        num_hidden_layers=plan["model.layers"],
        num_attention_heads=heads,
        num_key_value_heads=plan["model.kv_heads"],
        head_dim=hidden // heads,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=plan["model.tied"],
        initializer_range=SPREAD,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        use_cache=False,
    )


def model(plan: Plan, device: str) -> PreTrainedModel:
    """The model with weights drawn from `run.seed`: the same ones on every device. The caller's random state stays."""
    dtype = getattr(torch, plan["model.dtype"])
    with torch.random.fork_rng(devices=[]), torch.device("meta" if device == "meta" else "cpu"):
        torch.manual_seed(plan["run.seed"])
        built = AutoModelForCausalLM.from_config(config(plan), dtype=dtype)
    _quieten(built)
    return placed(plan, built, device)


def _quieten(model: PreTrainedModel) -> None:
    """Let every layer add little at first. The model learns which token follows which before it learns context, and 80
    steps take it further (5.36 against 5.83 nats a token). Not nothing: whether documents see each other must show on the
    first batch."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(0.1)
