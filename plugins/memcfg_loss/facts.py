"""What is known of the host's packages without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any


def triton(values: Mapping[str, Any]) -> bool:
    """Whether the triton package can be found."""
    return find_spec("triton") is not None
