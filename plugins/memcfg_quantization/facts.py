"""What is known of bitsandbytes without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any


def installed(values: Mapping[str, Any]) -> bool:
    """Whether the bitsandbytes package can be found."""
    return find_spec("bitsandbytes") is not None
