"""Attention packages on this host, found without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any


def flash2(choices: Mapping[str, Any]) -> bool:
    """Whether the package `flash-attn` is installed."""
    return find_spec("flash_attn") is not None


def kernels(choices: Mapping[str, Any]) -> bool:
    """Whether the package `kernels`, which fetches compiled kernels from the hub, is installed."""
    return find_spec("kernels") is not None


def flash3(choices: Mapping[str, Any]) -> bool:
    """Whether FlashAttention 3 is installed."""
    return find_spec("flash_attn_interface") is not None
