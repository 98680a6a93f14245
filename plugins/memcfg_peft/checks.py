"""What is wrong with the values of `peft.*`, found before anything is loaded. Each takes the values that it reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

Values = Mapping[str, Any]

HEADS: Final = ("lm_head", "embed_out", "output")
"""What output heads are called."""

OWNED: Final = {
    "r": "peft.rank", "init_r": "peft.rank", "oft_block_size": "peft.rank", "lora_alpha": "peft.alpha", "alpha": "peft.alpha",
    "lora_dropout": "peft.dropout", "module_dropout": "peft.dropout", "vera_dropout": "peft.dropout",
    "target_modules": "peft.targets", "modules_to_save": "peft.modules_to_save", "use_rslora": "peft.rslora",
    "use_dora": "peft.dora", "num_virtual_tokens": "peft.virtual_tokens",
}  # fmt: skip
"""Fields of peft's configurations that options of their own set."""

FREE: Final = {"module_dropout": ("loha", "lokr")}
"""Fields that no option sets for these methods."""

FIXED: Final = (
    "task_type", "inference_mode", "peft_type", "auto_mapping", "base_model_name_or_path", "revision", "peft_version",
)  # fmt: skip
"""Fields that follow from training this model."""

INIT: Final = "init_lora_weights"

AFTER_DATA: Final = ("eva", "corda", "lora_ga")
"""Beginnings of LoRA that are computed from a pass over data, which peft leaves to its caller."""

UNDONE: Final = {
    "layer_replication": "gives the model other layers than the plan knows",
    "alora_invocation_tokens": "switches the adapter on in the middle of a row, which training here does not do",
    "monteclora_config": "adds a term to the loss, which no trainer here has",
    "use_qalora": "is for weights in GPTQ's form, which are not trained on here",
    "megatron_config": "is for models of Megatron",
    "arrow_config": "is for several adapters",
}
"""Fields of which peft does a part, and leaves the rest to its caller."""

MOVES: Final = ("pissa", "olora", "loftq", *AFTER_DATA)
"""Beginnings of LoRA that take what the adapter starts with out of the model's own weights."""


def head_by_name(values: Values) -> str | None:
    given = values["peft.targets"]
    named = [name for name in (given if isinstance(given, list) else [given]) if name in HEADS]
    return f"`{named[0]}` is the output head: leave it out and add `peft.head=true`" if named else None


def owned(values: Values) -> str | None:
    for name in values["peft.config"] or {}:
        if name in OWNED and values["peft.method"] not in FREE.get(name, ()):
            return f"`{name}` is what `{OWNED[name]}` says: leave it out and set that"
        if name in FIXED:
            return f"`{name}` is set for training: leave it out"
    return None


def undone(values: Values) -> str | None:
    given = values["peft.config"] or {}
    if _begins(given, AFTER_DATA):
        return f"`{INIT}={given[INIT]}` looks at data before training, which is not done here"
    return next((f"`{name}` {why}" for name, why in UNDONE.items() if given.get(name)), None)


def moves_the_model(values: Values) -> str | None:
    """An adapter that begins with what it takes out of the model leaves another model behind when it is off."""
    given, mode = values["peft.config"] or {}, values["reference.mode"]
    began = "kasa_config" if given.get("kasa_config") is not None else ""
    if _begins(given, MOVES):
        began = f"{INIT}={given[INIT]}"
    if began and (mode == "adapter" or values["reference.path"] is None):
        other = "`reference.mode=live` and the model's own folder as `reference.path`"
        return f"`{began}` takes a part out of the model's own weights: add {other}"
    if given.get("bias", "none") != "none" and mode == "adapter":
        return f"`bias={given['bias']}` trains biases of the model itself: add `reference.mode=live`"
    return None


def drawn(values: Values) -> str | None:
    given = values["peft.config"] or {}
    if not _begins(given, ("pissa_niter",)):
        return None
    return f"`{INIT}={given[INIT]}` starts from random numbers, which differ when it is loaded: add `peft.merge=true`"


def whole_dropout(values: Values) -> str | None:
    return "a dropout of 1 leaves nothing of the adapter" if values["peft.dropout"] == 1 else None


def no_target(values: Values) -> str | None:
    return "an empty list adapts no layer: leave it out" if values["peft.targets"] in ([], "") else None


def pattern(values: Values) -> str | None:
    given = values["peft.targets"]
    if not isinstance(given, str):
        return None
    try:
        re.compile(given)
    except re.error as error:
        return f"`{given}` is no pattern: {error}"
    return None


def named(values: Values) -> str | None:
    for key in ("peft.targets", "peft.modules_to_save"):
        given = values[key]
        wrong = [name for name in given if not isinstance(name, str) or not name] if isinstance(given, list) else []
        if wrong:
            return f"`{key}` lists `{wrong[0]!r}`, which is no name of a layer"
    return None


def both(values: Values) -> str | None:
    adapted, whole = values["peft.targets"], values["peft.modules_to_save"] or []
    shared = [name for name in (adapted if isinstance(adapted, list) else []) if name in whole]
    return f"`{shared[0]}` is in both `peft.targets` and `peft.modules_to_save`: leave it in one" if shared else None


def _begins(given: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    return str(given.get(INIT, "")).startswith(names)
