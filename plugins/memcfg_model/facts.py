"""What a model is, read without importing anything heavy."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memcfg import PENDING
from memcfg_model.dropout import drops
from memcfg_model.kinds import other_kind, said
from memcfg_model.presets import PRESETS
from memcfg_model.types import MODEL_TYPES, OTHER


def model_type(choices: Mapping[str, Any]) -> Any:
    """The `model_type` of the model that the request names; pending where only the network could tell."""
    source = choices.get("model.source", "tiny")
    if source == "tiny":
        return "qwen3"
    if source == "shape":
        return PRESETS.get(str(choices.get("model.preset")), {}).get("model_type", OTHER)
    path = choices.get("model.path")
    config = config_file(path) if source == "hub" and path else None
    kind = None if config is None else _kind(config)
    if kind is None:
        return PENDING
    return kind if kind in MODEL_TYPES else OTHER


def no_decoder(path: str | None) -> str | None:
    """What a saved model is and what to use instead, where it is no decoder of text; None where that is not known without
    loading it."""
    config = config_file(path) if path else None
    found = None if config is None else other_kind(_read(config))
    return None if found is None else said(str(path), found)


def attention_dropout(choices: Mapping[str, Any]) -> Any:
    """Whether the model that the request names drops attention weights in training; pending where only the network could
    tell."""
    source = choices.get("model.source", "tiny")
    if source == "tiny":
        return False
    if source == "shape":
        return drops(PRESETS.get(str(choices.get("model.preset")), {}))
    path = choices.get("model.path")
    config = config_file(path) if source == "hub" and path else None
    found = {} if config is None else _read(config)
    return drops(found) if found else PENDING


def preset_depth(preset: str | None) -> int | None:
    """How many layers a published model has; None for a name that is none."""
    return PRESETS.get(str(preset), {}).get("num_hidden_layers")


def saved_depth(path: str | None) -> int | None:
    """How many layers a saved model has; None where that is not known without loading it."""
    config = config_file(path) if path else None
    found = {} if config is None else _read(config)
    inner = found.get("text_config")
    count = (inner if isinstance(inner, dict) else found).get("num_hidden_layers")
    return count if isinstance(count, int) else None


def fetched_type(values: Mapping[str, Any]) -> Any:
    """The same, its configuration brought from the hub first. Raises `RunError` where it cannot be had."""
    from memcfg.planner.config import fetch

    fetch(values)
    return model_type(values)


def fetched_dropout(values: Mapping[str, Any]) -> Any:
    """Whether attention weights are dropped, of a model whose configuration is brought from the hub first. Raises `RunError`
    where it cannot be had."""
    from memcfg.planner.config import fetch

    fetch(values)
    return attention_dropout(values)


def config_file(path: str) -> Path | None:
    """The `config.json` of a saved model or of a hub id that was downloaded before; None where there is none."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        found = folder / "config.json"
    else:
        found = _cached(path) / "config.json"
    return found if found.is_file() else None


def _cached(hub_id: str) -> Path:
    """Where the hub's client keeps the files of the main revision of a model."""
    home = os.environ.get("HF_HUB_CACHE") or os.path.join(
        os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface"), "hub"
    )
    folder = Path(home) / f"models--{hub_id.replace('/', '--')}"
    main = folder / "refs" / "main"
    revision = main.read_text(encoding="utf-8").strip() if main.is_file() else "none"
    return folder / "snapshots" / revision


def _kind(config: Path) -> str | None:
    kind = _read(config).get("model_type")
    return kind if isinstance(kind, str) else None


def _read(config: Path) -> dict[str, Any]:
    """What a configuration says; nothing where it cannot be read: loading the model says what is wrong."""
    try:
        found = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
