"""What other estimators say of the configurations of `benchmarks/predict.py`.

    pip install --target FOLDER --no-deps fitcheck-llm
    PYTHONPATH=FOLDER python benchmarks/predict_peers.py --out peers.jsonl        needs no GPU
    python benchmarks/predict.py compare predicted.jsonl measured.jsonl --peers peers.jsonl

fitcheck-llm's tensors (all but its overhead) are compared with what was allocated, accelerate's "Training using Adam" too: the
formulas behind `accelerate estimate-memory`, on the same model, for the plan's type of weights. Both take the model's shape
from here, since a hub is not needed for it. `left_out` says what of a configuration an estimator has no word for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from predict import CARD, CONFIGURATIONS

MIB: Final = 1 << 20
TYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
OPTIMIZERS: Final = {"adamw": "adamw", "adamw_bf16": "adamw", "adamw_offload": "adamw", "sgd": "sgd"}

Plan = Mapping[str, Any]
Unsaid = dict[str, Callable[[Plan], bool]]

FITCHECK: Final[Unsaid] = {
    "weights in bfloat16 without a float32 copy": lambda p: p["peft.method"] == "none" and p["model.dtype"] != "float32",
    "logits in chunks": lambda p: p["loss.type"] != "nll",
    "selective or rarer checkpoints": lambda p: p["checkpointing.mode"] == "selective" or p.get("checkpointing.every") == 2,
    "offloaded activations": lambda p: p["offload.activations"] != "none",
    "feed-forward layers in pieces": lambda p: p["mlp.mode"] != "whole",
    "this optimizer": lambda p: p["optimizer.name"] not in ("adamw", "adamw_bf16", "sgd"),
    "gradients that go in the backward pass": lambda p: bool(p.get("optimizer.in_backward")),
    "packed rows": lambda p: p["packing.strategy"] != "none" or bool(p.get("padding_free.enabled")),
    "fused kernels": lambda p: bool(p.get("liger.enabled")),
    "DoRA": lambda p: bool(p.get("peft.dora")),
}  # fmt: skip

ACCELERATE: Final[Unsaid] = {
    **{name: left for name, left in FITCHECK.items() if name not in ("logits in chunks",)},
    "activations": lambda p: True,
    "adapters": lambda p: p["peft.method"] != "none",
}


def asked(name: str) -> tuple[Plan, Any]:
    """A configuration's plan and its model without storage."""
    from memcfg.compose import resolve
    from memcfg.registry import load

    registry = load()
    plan = resolve([f"assume.device={CARD}", *CONFIGURATIONS[name].split()], registry=registry)
    return plan, registry.hooks(plan).load_model(plan=plan, device="meta")


def fitcheck(plan: Plan, model: Any) -> dict[str, Any]:
    """fitcheck-llm's estimate. Raises what it raises for what it refuses."""
    from fitcheck.config_parser import ModelConfig
    from fitcheck.estimator import TrainingConfig, estimate
    from fitcheck.gpu_db import get_gpu

    config = model.config.get_text_config()
    heads = config.num_attention_heads
    shape = ModelConfig(
        name="shape", num_params=sum(p.numel() for p in model.parameters()), hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers, num_attention_heads=heads, num_kv_heads=config.num_key_value_heads or heads,
        intermediate_size=config.intermediate_size, vocab_size=config.vocab_size,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        tie_word_embeddings=model.get_output_embeddings().weight is model.get_input_embeddings().weight,
    )  # fmt: skip
    training = TrainingConfig(
        precision=TYPES[plan["model.dtype"]], optimizer=OPTIMIZERS.get(plan["optimizer.name"], "adamw"),
        optimizer_dtype="fp32" if plan["model.dtype"] == "float32" or plan["peft.method"] != "none" else "bf16",
        batch_size=plan["run.batch_size"], seq_len=plan["truncation.max_length"],
        lora_rank=plan["peft.rank"] if plan["peft.method"] == "lora" else None, lora_targets=_targets(plan, model),
        grad_checkpoint=plan["checkpointing.mode"] != "none", flash_attn=plan["attention.implementation"] != "eager",
        grad_accum_steps=plan["run.accumulation"],
    )  # fmt: skip
    report = estimate(shape, training, get_gpu(CARD))
    return {
        "allocated_bytes": int((report.total_mib - report.overhead_mib) * MIB),
        "total_bytes": int(report.total_mib * MIB),
    }


def _targets(plan: Plan, model: Any) -> list[str]:
    """The layers that the plan adapts, by their last name."""
    from memcfg_peft.adapter import adapted
    from memcfg_peft.layers import adapted_layers

    if plan["peft.method"] == "none":
        return ["q_proj"]  # not read without adapters
    return sorted({name.rpartition(".")[2] for name in adapted_layers(adapted(plan, model))})  # type: ignore[arg-type]


def accelerate(plan: Plan, model: Any) -> dict[str, Any]:
    """accelerate's "Training using Adam" for the plan's type of weights: its formulas take the size in float32."""
    from accelerate.commands.estimate import estimate_training_usage

    size = 4 * sum(p.numel() for p in model.parameters())
    return {"allocated_bytes": max(estimate_training_usage(size, plan["model.dtype"]).values())}


PEERS: Final = {"fitcheck": (fitcheck, FITCHECK), "accelerate": (accelerate, ACCELERATE)}


def estimates(name: str) -> dict[str, Any]:
    """What each estimator says of a configuration; an error where it refuses it."""
    found: dict[str, Any] = {"case": name}
    for peer, (estimate, unsaid) in PEERS.items():
        plan, model = asked(name)  # anew: adapters stay in a model
        left = [text for text, applies in unsaid.items() if applies(plan)]
        try:
            found[peer] = {**estimate(plan, model), "left_out": left}
        except Exception as error:  # whatever a peer refuses with is what there is to say of it
            found[peer] = {"error": f"{type(error).__name__}: {error}"[:300], "left_out": left}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="", help="names that contain this")
    said = parser.parse_args()
    with Path(said.out).open("w", encoding="utf-8") as file:
        for name in CONFIGURATIONS:
            if said.only in name:
                file.write(json.dumps(estimates(name)) + "\n")


if __name__ == "__main__":
    main()
