"""Whether the rows hold images, read off the head of a local file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memcfg import PENDING

COLUMNS = frozenset({"image", "images"})


def data(values: Mapping[str, Any]) -> Any:
    """False for memcfg's own text; true or false for a local file of JSON lines; otherwise pending."""
    source, path = values.get("data.source", "stdlib"), values.get("data.path")
    if source == "stdlib":
        return False
    if source != "jsonl":
        return PENDING
    try:
        with Path(str(path)).open(encoding="utf-8") as lines:
            first = json.loads(next(lines))
    except (OSError, ValueError, StopIteration):
        return False  # the data plugin says what is wrong with the file
    return isinstance(first, dict) and not COLUMNS.isdisjoint(first)
