"""Models and tokenizers that were saved in a folder, or that lie on the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer

from memcfg import Problem, RunError
from memcfg.modelfiles import KEY, all_there, check_weights, explained, located
from memcfg_model.kinds import INSTEAD, other_kind
from memcfg_model.places import placed

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers")
"""What no model goes without."""

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from memcfg import Plan


def tokenizer(plan: Plan) -> PreTrainedTokenizerBase:
    """The tokenizer saved beside the model. Raises `RunError` where it cannot be had."""
    path = located(plan["model.path"])
    with explained(path, "tokenizer"):
        return AutoTokenizer.from_pretrained(path, trust_remote_code=plan["model.trust_remote_code"])


def model(plan: Plan, device: str) -> PreTrainedModel:
    """The model in the plan's dtype; on `meta` its shape only. Raises `RunError` where it cannot be had."""
    path = located(plan["model.path"])
    chosen = plan["model.dtype"]
    options = {
        "dtype": chosen if chosen == "auto" else getattr(torch, chosen),
        "trust_remote_code": plan["model.trust_remote_code"],
    }
    if device == "meta":
        return placed(plan, _shape(path, options), device)
    configuration(path, options["trust_remote_code"])
    check_weights(Path(path))
    refuse_otherwise_quantised(Path(path), plan.get("quantization.mode", "none"))
    loaded: Any = None
    report: dict[str, Any] = {}
    with explained(path, "model"):
        loaded, report = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, **options)  # type: ignore[misc]
    all_there(path, report["missing_keys"], "save the whole model, with its head (`AutoModelForCausalLM`)")
    return placed(plan, loaded, device)


def _shape(path: str, options: dict[str, Any]) -> PreTrainedModel:
    config = configuration(path, options["trust_remote_code"])
    with explained(path, "model"), torch.device("meta"):
        refuse_nothing(path, config.get_text_config())
        return AutoModelForCausalLM.from_config(config, **options)


def configuration(path: str, trust: bool) -> Any:
    """A saved model's configuration. Raises `RunError` where it cannot be had, or is not that of a decoder of text."""
    with explained(path, "model"):
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust)
    found = other_kind(config.to_dict())
    own = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if found is None and not own and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        found = f"a `{config.model_type}` model, which Transformers has no causal language model of", INSTEAD
    if found is not None:
        raise RunError(Problem(f"`{path}` is {found[0]}", key=KEY, fix=found[1]))
    return config


def refuse_nothing(path: str, config: Any) -> None:
    """Raises `RunError` for sizes below one, which Transformers takes; what divides by them does not."""
    for name in SIZES:
        size = getattr(config, name, None)
        if isinstance(size, int) and size < 1:
            text = f"the configuration of `{path}` says `{name}` is {size}, and a model has at least one"
            raise RunError(Problem(text, key=KEY))


def refuse_otherwise_quantised(folder: Path, mode: str) -> None:
    """Raises `RunError` if a saved model's weights are quantised, and not as the plan says."""
    stored = stored_quantisation(folder)
    if stored in (None, mode):
        return
    known = stored in ("nf4", "fp4", "int8")
    text = f"the weights in `{folder}` are quantised as `{stored}` already"
    fix = f"quantization.mode={stored} peft.method=lora" if known else "take the model that it was made from"
    raise RunError(Problem(text, key="quantization.mode" if mode != "none" else KEY, fix=fix))


def stored_quantisation(folder: Path) -> str | None:
    """How the weights of a saved model are quantised, by the plan's name where it has one."""
    file = folder / "config.json"
    stored = json.loads(file.read_text(encoding="utf-8")).get("quantization_config") if file.is_file() else None
    if not isinstance(stored, dict):
        return None
    if stored.get("load_in_8bit"):
        return "int8"
    if stored.get("load_in_4bit"):
        return str(stored.get("bnb_4bit_quant_type", "fp4"))
    return str(stored.get("quant_method", "unknown"))
