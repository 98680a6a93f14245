"""Whether a model is a mixture of experts, read off its configuration file without loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memcfg import PENDING

COUNTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""What the number of experts is called, in different architectures."""


def model(values: Mapping[str, Any]) -> Any:
    """True or false where the model is a local folder or memcfg's own; pending for a name on the hub."""
    if values.get("model.source") != "hub":
        return False
    file = Path(str(values.get("model.path"))) / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return PENDING
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    return any((part.get(name) or 0) > 1 for part in parts for name in COUNTS)
