"""A model's configuration, where only the network has it. Nothing else of the model is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memcfg import hub
from memcfg.errors import Problem, RunError
from memcfg.modelfiles import KEY, no_model, refuse_missing


def fetch(plan: Mapping[str, Any]) -> bool:
    """Bring `config.json` of the plan's hub id into the local cache. False where the plan names no hub id.

    Raises `RunError` where it cannot be had, or where a local one cannot be read."""
    path = plan.get(KEY)
    if path is None:
        return False
    if Path(path).expanduser().exists():
        _read(Path(path).expanduser())
        return False
    refuse_missing(path)
    there = hub.reachable()
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(path, "config.json")
    except Exception as error:  # the hub's client raises dozens of kinds, those of its transport included
        reason = (
            "it was not downloaded before, and the hub cannot be reached"
            if not there
            else next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        )
        fix = "a hub id needs the network or an earlier download; or give a folder that holds `config.json`"
        raise RunError(Problem(f"the configuration of `{path}` cannot be had: {reason}", key=KEY, fix=fix)) from error
    return True


def _read(folder: Path) -> None:
    """Raise `RunError` for a folder whose `config.json` says nothing."""
    import json

    file = folder / "config.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise no_model(folder) from error
    except (OSError, ValueError) as error:
        raise RunError(Problem(f"`{file}` is no JSON: {error}", key=KEY)) from error
    if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):
        raise RunError(Problem(f"`{file}` names no `model_type`, so its architecture is not known", key=KEY))
