"""What is known of the packages that spread work, without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any


def deepspeed(values: Mapping[str, Any]) -> bool:
    """Whether the deepspeed package can be found."""
    return find_spec("deepspeed") is not None
