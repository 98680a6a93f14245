"""Whether a model is a mixture of experts, read off its configuration file without loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memcfg import PENDING, hub

COUNTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""What the number of experts is called, in different architectures."""


def model(values: Mapping[str, Any]) -> Any:
    """True or false where the model is a local folder or memcfg's own; pending for a name on the hub."""
    if values.get("model.source") != "hub":
        return False
    return _routes(Path(str(values.get("model.path"))).expanduser() / "config.json")


def fetched(values: Mapping[str, Any]) -> Any:
    """The same for a name on the hub. Pending where its configuration cannot be had: whoever needs it says so."""
    hub.reachable()
    from huggingface_hub import hf_hub_download

    try:
        return _routes(Path(hf_hub_download(str(values.get("model.path")), "config.json")))
    except Exception:  # the hub's client raises dozens of kinds, those of its transport included
        return PENDING


def _routes(file: Path) -> Any:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return PENDING
    if not isinstance(config, dict):
        return PENDING
    counts = [part.get(name) for part in (config, *config.values()) if isinstance(part, dict) for name in COUNTS]
    return any(count > 1 for count in counts if isinstance(count, int))
