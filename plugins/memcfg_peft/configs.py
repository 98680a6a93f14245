"""peft's own configuration, from a plan and the layers of the model at hand."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import peft
import torch
from peft.utils import constants

from memcfg import Plan, Problem, RequestError, RunError
from memcfg.engine.forward import NEW_HEAD, causal_model
from memcfg_peft.matching import matches, unmatched
from memcfg_peft.warned import quiet

CONFIGS: dict[str, type[peft.PeftConfig]] = {
    "lora": peft.LoraConfig, "adalora": peft.AdaLoraConfig, "loha": peft.LoHaConfig, "lokr": peft.LoKrConfig,
    "oft": peft.OFTConfig, "vera": peft.VeraConfig, "ia3": peft.IA3Config, "prompt": peft.PromptTuningConfig,
    "prefix": peft.PrefixTuningConfig, "p_tuning": peft.PromptEncoderConfig,
}  # fmt: skip
"""peft's configuration of each method."""

DROPOUT = {"lora": "lora_dropout", "adalora": "lora_dropout", "oft": "module_dropout", "vera": "vera_dropout"}
ALPHA = {"lora": "lora_alpha", "adalora": "lora_alpha", "loha": "alpha", "lokr": "alpha"}
RANK = {"lora": "r", "adalora": "init_r", "loha": "r", "lokr": "r", "oft": "r", "vera": "r"}
"""What peft calls each setting, by method."""

ALL = "all-linear"
SAVED = "peft.modules_to_save"
LINEAR = ("Linear", "Conv1D", "Linear4bit", "Linear8bitLt")


def config_of(plan: Plan, model: torch.nn.Module) -> peft.PeftConfig:
    """The configuration that the plan describes for this model. Raises `RunError` for layers that it does not have."""
    method = plan["peft.method"]
    values: dict[str, Any] = {"task_type": "CAUSAL_LM", **_of_method(plan, method)}
    if whole := trained_whole(plan, model):
        values["modules_to_save"] = whole
    if method not in ("prompt", "prefix", "p_tuning"):
        values["target_modules"] = _apart(plan, model, targets_of(plan, model), whole)
    kind = CONFIGS[method]
    values |= _further(plan, kind)
    try:
        with quiet():
            return kind(**values)
    except (TypeError, ValueError, ImportError, UserWarning) as error:
        key = "peft.config" if plan.get("peft.config") else "peft.method"
        raise RunError(Problem(f"peft refuses it: {error}", key=key)) from error


def targets_of(plan: Plan, model: torch.nn.Module) -> list[str] | str:
    """The layers to adapt, as peft takes them: names, or a pattern. Raises `RunError` for a name that matches none."""
    given = plan.get("peft.targets")
    if given is None:
        given = _usual(plan["peft.method"], model)
    if isinstance(given, str) and given != ALL:
        return _pattern(given, model, head=plan.get("peft.head") is True)
    names = _linear_names(model) if given == ALL else _checked(model, given, "peft.targets")
    return [*names, head_name(model)] if plan.get("peft.head") else names


def trained_whole(plan: Plan, model: torch.nn.Module) -> list[str]:
    """The layers that are trained whole. Raises `RunError` for one that is not there or whose weights are packed."""
    whole = _checked(model, plan.get("peft.modules_to_save") or [], SAVED)
    fixed = [name for name in whole if not _floating(model, name)]
    if fixed:
        text = f"the weights of `{fixed[0]}` are packed into few bits, and cannot be trained whole"
        raise RunError(Problem(text, key=SAVED, fix=f"leave `{fixed[0]}` out, or `quantization.mode=none`"))
    return [*whole, head_name(model)] if getattr(causal_model(model), NEW_HEAD, False) else whole


def _floating(model: torch.nn.Module, entry: str) -> bool:
    inside = [p for name in matches(layer_names(model), entry) for p in model.get_submodule(name).parameters()]
    return all(p.is_floating_point() and not hasattr(p, "quant_state") for p in inside)


def _apart(plan: Plan, model: torch.nn.Module, targets: list[str] | str, whole: list[str]) -> list[str] | str:
    """The targets without layers that are trained whole, which have no adapter.

    Raises `RunError` where the user named such a layer as a target, or where nothing is left."""
    names = layer_names(model)
    adapted = _named(names, targets)
    within = {name: entry for entry in whole for name in matches(names, entry)}
    clash = {name: within[outer] for name in adapted for outer in _around(name) if outer in within}
    if not clash:
        return targets
    name, entry = next(iter(clash.items()))
    if plan.get("peft.head") and name == head_name(model):
        text = f"`{entry}` is the output head, which `peft.head=true` adapts"
        raise RunError(Problem(text, key=SAVED, fix=f"leave `{entry}` out, or `peft.head=false`"))
    if plan.get("peft.targets") not in (None, ALL):
        text = f"`{entry}` is trained whole, and `peft.targets` gives `{name}` an adapter"
        raise RunError(Problem(text, key=SAVED, fix="leave it in one of the two"))
    left = [name for name in adapted if name not in clash]
    if not left:
        text = "every layer that would have an adapter is trained whole"
        raise RunError(Problem(text, key=SAVED, fix="name other layers in `peft.targets`, or leave some out"))
    return left


def _named(names: list[str], targets: list[str] | str) -> list[str]:
    """The layers that targets stand for, as peft reads them."""
    if isinstance(targets, str):
        return [name for name in names if re.fullmatch(targets, name)]
    found = {name for entry in targets for name in matches(names, entry)}
    return [name for name in names if name in found]


def _around(name: str) -> list[str]:
    """The module and those that it lies in."""
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def head_name(model: torch.nn.Module) -> str:
    """The name of the output head."""
    inner: Any = causal_model(model)
    head = inner.get_output_embeddings()
    return next(name for name, module in inner.named_modules() if module is head)


def layer_names(model: torch.nn.Module) -> list[str]:
    return [name for name, _ in model.named_modules() if name]


def _of_method(plan: Plan, method: str) -> dict[str, Any]:
    """The settings of `peft.*` that this method reads, by peft's names."""
    values = {
        names[method]: plan[key]
        for names, key in ((RANK, "peft.rank"), (ALPHA, "peft.alpha"), (DROPOUT, "peft.dropout"))
        if method in names
    }
    if method == "lora":
        values |= {"use_rslora": plan["peft.rslora"], "use_dora": plan["peft.dora"], "bias": "none"}
    if method == "adalora":
        values |= {"total_step": plan["run.steps"], "target_r": max(1, plan["peft.rank"] // 2)}
    if method == "oft":
        values["oft_block_size"] = 0  # the rank decides
    if method in ("prompt", "prefix", "p_tuning"):
        values["num_virtual_tokens"] = plan["peft.virtual_tokens"]
    return values


def _further(plan: Plan, kind: type[peft.PeftConfig]) -> dict[str, Any]:
    """`peft.config`, checked for spelling."""
    given = dict(plan.get("peft.config") or {})
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(given) - known)
    if unknown:
        text = f"`{kind.__name__}` has no field {', '.join(f'`{name}`' for name in unknown)}"
        raise RequestError(Problem(text, key="peft.config", fix=f"its fields are {', '.join(sorted(known))}"))
    return given


def _checked(model: torch.nn.Module, entries: list[str], key: str) -> list[str]:
    problems = unmatched(layer_names(model), entries, key=key)
    if problems:
        raise RunError(*problems)
    return list(entries)


def _linear_names(model: torch.nn.Module) -> list[str]:
    """What every linear layer but the head is called, shortened where no other layer is called so."""
    head = head_name(model)
    found = [n for n, m in model.named_modules() if type(m).__name__ in LINEAR and n != head]
    leaves = list(dict.fromkeys(name.rpartition(".")[2] for name in found))
    return leaves if head.rpartition(".")[2] not in leaves else found


def _pattern(given: str, model: torch.nn.Module, *, head: bool) -> str:
    try:
        pattern = f"(?:{given})|{re.escape(head_name(model))}" if head else given
        matched = [name for name in layer_names(model) if re.fullmatch(given, name)]
    except re.error as error:
        raise RequestError(Problem(f"`{given}` is no pattern: {error}", key="peft.targets")) from error
    if not matched:
        text = f"the pattern `{given}` matches no layer of the model"
        if given.replace("_", "-") == ALL:
            raise RunError(Problem(text, key="peft.targets", nearest=(ALL,)))
        fix = f"a pattern is held against whole names, such as `{_linear_name(model)}`; a list holds names"
        raise RunError(Problem(text, key="peft.targets", fix=fix))
    return pattern


def _linear_name(model: torch.nn.Module) -> str:
    return next((n for n, m in model.named_modules() if type(m).__name__ in LINEAR), "")


def _usual(method: str, model: torch.nn.Module) -> list[str] | str:
    """What peft itself adapts in this architecture."""
    kind = getattr(causal_model(model).config, "model_type", "")
    table = getattr(constants, f"TRANSFORMERS_MODELS_TO_{method.upper()}_TARGET_MODULES_MAPPING", None)
    table = table or constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    if kind in table:
        found = table[kind]
        return found if isinstance(found, str) else list(found)
    text = f"peft does not say which layers of a `{kind}` model to adapt"
    raise RunError(Problem(text, key="peft.targets", fix="peft.targets=all-linear"))
