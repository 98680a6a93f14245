"""Whether the rows hold images, read off the head of a file, or off the columns that a data set says it has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memcfg import PENDING, hub

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


def columns(values: Mapping[str, Any]) -> Any:
    """The same from the columns of Parquet files and of data sets on the hub. Pending where they cannot be read: loading
    the rows says why."""
    source, path = values.get("data.source"), values.get("data.path")
    try:
        if source == "parquet":
            names = _parquet(Path(str(path)).expanduser())
        elif source == "hub":
            names = _hub(str(path), values)
        else:
            return PENDING
    except Exception:  # of pyarrow, of the hub's client and its transport
        return PENDING
    return not COLUMNS.isdisjoint(names)


def _parquet(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    files = [path] if path.is_file() else sorted(path.parent.glob(path.name)) or sorted(path.rglob("*.parquet"))
    file = files[0] if files[0].is_file() else next(files[0].rglob("*.parquet"))
    return list(pq.read_schema(file).names)


def _hub(name: str, values: Mapping[str, Any]) -> list[str]:
    saved = next(Path(name).expanduser().rglob("dataset_info.json"), None)
    if saved is not None:
        return list(json.loads(saved.read_text(encoding="utf-8"))["features"])
    if not Path(name).expanduser().exists():
        hub.reachable()
    from datasets import load_dataset_builder

    features = load_dataset_builder(name, values.get("data.config"), revision=values.get("data.revision")).info.features
    if features is None:
        raise ValueError("the data set names no columns")
    return list(features)
