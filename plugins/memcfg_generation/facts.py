"""What is known of the host's packages without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

SINCE = (5, 17)


def continuous(values: Mapping[str, Any]) -> bool:
    """Whether the installed Transformers batches continuously with pages and a seed."""
    major, minor = version("transformers").split(".")[:2]
    return (int(major), int(minor)) >= SINCE
