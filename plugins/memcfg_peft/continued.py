"""An adapter that a run goes on with: exactly the one that it had, where peft by itself makes another one of it."""

from __future__ import annotations

from pathlib import Path
from types import MethodType
from typing import Any, Final

import peft
import torch
from safetensors.torch import load_file, save_file

from memcfg import Problem, RunError

ENCODER: Final = "prompt_encoder.safetensors"
"""Where a checkpoint holds all that is trained, where virtual tokens are computed: peft saves what they were at last, and not what
computes them."""


def continued(model: peft.PeftModel) -> None:
    """Let checkpoints of the model hold all that is trained, and loading them change neither dtypes nor parameters."""
    # bound methods, not closures over the model: a deep copy of the model binds to the copy
    model.load_adapter = MethodType(_load, model)  # type: ignore[method-assign]
    if _computed(model):
        model.save_pretrained = MethodType(_save, model)  # type: ignore[method-assign]


def _computed(model: torch.nn.Module) -> bool:
    """Whether virtual tokens are more than a table."""
    encoder = getattr(model, "prompt_encoder", None)
    names = [] if encoder is None else [name for name, _ in encoder.named_parameters()]
    return any(not name.endswith(".embedding.weight") for name in names)


def _save(model: peft.PeftModel, folder: str, *args: Any, **keywords: Any) -> None:
    type(model).save_pretrained(model, folder, *args, **keywords)
    if keywords.get("is_main_process", True):
        found = keywords.get("state_dict") or model.state_dict()
        names = [name for name, parameter in model.named_parameters() if parameter.requires_grad and name in found]
        save_file({name: found[name].detach().cpu().contiguous() for name in names}, Path(folder) / ENCODER)


def _load(model: peft.PeftModel, folder: str, *args: Any, **keywords: Any) -> Any:
    """Where it loads an adapter in sixteen bits, peft puts new parameters of float32 in the place of those that the optimizer
    holds."""
    if not _computed(model):
        return type(model).load_adapter(model, folder, *args, **{"autocast_adapter_dtype": False, **keywords})
    file = Path(folder) / ENCODER
    if not file.is_file():
        text = f"`{folder}` holds virtual tokens, and not what computes them"
        raise RunError(Problem(text, key="run.resume", fix="begin a new run: it was saved by an earlier version"))
    return model.load_state_dict(load_file(file), strict=False)
