"""What is known of the packages without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

SINCE = (2, 13)


def cut(values: Mapping[str, Any]) -> bool:
    """Whether cut-cross-entropy can be found."""
    return find_spec("cut_cross_entropy") is not None


def linear(values: Mapping[str, Any]) -> bool:
    """Whether the installed torch is new enough to have `linear_cross_entropy`."""
    major, minor = version("torch").split(".")[:2]
    return (int(major), int(minor)) >= SINCE
