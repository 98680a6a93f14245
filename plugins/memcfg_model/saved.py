"""Models and tokenizers that were saved in a folder, or that lie on the hub."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from memcfg import Problem, RunError, hub
from memcfg.planner.config import refuse_missing

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from memcfg import Plan

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
KEY = "model.path"


def tokenizer(plan: Plan) -> PreTrainedTokenizerBase:
    """The tokenizer saved beside the model. Raises `RunError` where it cannot be had."""
    path = located(plan["model.path"])
    with _explained(path, "tokenizer"):
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
        return _shape(path, options)
    check_weights(Path(path))
    refuse_otherwise_quantised(Path(path), plan.get("quantization.mode", "none"))
    loaded: Any = None
    report: dict[str, Any] = {}
    with _explained(path, "model"):
        loaded, report = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, **options)  # type: ignore[misc]
    _all_there(path, report["missing_keys"])
    if plan.get("quantization.mode", "none") != "none":
        return loaded  # on the host: its layers reach the device one by one, quantised
    return loaded.to(device)


def _shape(path: str, options: dict[str, Any]) -> PreTrainedModel:
    with _explained(path, "model"), torch.device("meta"):
        config = AutoConfig.from_pretrained(path, trust_remote_code=options["trust_remote_code"])
        return AutoModelForCausalLM.from_config(config, **options)


def located(path: str) -> str:
    """The folder that `path` names, or `path` itself if it can be a hub id. Raises `RunError` for a folder that is not
    there or holds no model."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise RunError(Problem(f"the folder `{path}` holds no `config.json`, so no saved model", key=KEY))
        return str(folder)
    if folder.exists():
        raise RunError(Problem(f"`{path}` is a file; give the folder that the model was saved in", key=KEY))
    refuse_missing(path)
    hub.reachable()  # where it is not, what follows finds out at once
    return path


def check_weights(folder: Path) -> None:
    """Raises `RunError` if a saved model's weights are not all there. A hub id has nothing to check."""
    if not folder.is_dir():
        return
    indices = [folder / f"{name}.index.json" for name in WEIGHTS]
    index = next((i for i in indices if i.is_file()), None)
    if index is not None:
        missing = sorted({f for f in _shards(index) if not (folder / f).is_file()})
        if missing:
            text = f"`{folder}` lacks {len(missing)} of the weight files that its index names: " + ", ".join(
                missing[:3]
            )
            raise RunError(Problem(text, key=KEY, fix="copy the folder again, whole"))
    elif not any((folder / name).is_file() for name in WEIGHTS):
        raise RunError(Problem(f"`{folder}` holds no weights (`{WEIGHTS[0]}`)", key=KEY))


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


def _all_there(path: str, missing: Collection[str]) -> None:
    """Raises `RunError` for weights that no file held: Transformers would train on random ones with a warning."""
    if missing:
        names = ", ".join(f"`{name}`" for name in sorted(missing)[:3]) + (", ..." if len(missing) > 3 else "")
        text = f"the files of `{path}` lack {len(missing)} of the model's weights: {names}"
        raise RunError(Problem(text, key=KEY, fix="save the whole model, with its head (`AutoModelForCausalLM`)"))


def _shards(index: Path) -> list[str]:
    try:
        return list(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError) as error:
        raise RunError(Problem(f"`{index}` is no index of weights", key=KEY)) from error


@contextmanager
def _explained(path: str, what: str) -> Iterator[None]:
    """Turn what Transformers raises about a bad folder or an id that cannot be fetched into one clear error."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        text = f"the {what} of `{path}` cannot be loaded: {reason}"
        fix = None if Path(path).is_dir() else "a hub id needs the network or an earlier download; or give a folder"
        raise RunError(Problem(text, key=KEY, fix=fix)) from error
