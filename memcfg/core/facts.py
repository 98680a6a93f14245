"""Probes of the host, free of torch: each takes the request's values and returns the fact's value.

`device.type` is `cuda` only if torch could use a GPU: the driver sees one, `CUDA_VISIBLE_DEVICES` does not hide it, and
the installed torch is no CPU build.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from memcfg.core import nvml
from memcfg.errors import RunError

Choices = Mapping[str, Any]


def device_type(choices: Choices) -> str:
    """`cuda` or `cpu`."""
    return "cuda" if _capability(os.environ.get("CUDA_VISIBLE_DEVICES")) else "cpu"


def device_capability(choices: Choices) -> int:
    """Compute capability times ten of the first visible GPU; 0 where training would use the CPU."""
    return _capability(os.environ.get("CUDA_VISIBLE_DEVICES"))


def world_size(choices: Choices) -> int:
    """Processes that the launcher (`torchrun`, `accelerate launch`) started; without one, those that the request wants to
    be started on this machine."""
    stated = os.environ.get("WORLD_SIZE", "").strip()
    if not stated:
        wanted = choices.get("distributed.processes")
        return wanted if type(wanted) is int and wanted >= 1 else 1
    if not stated.isdigit() or int(stated) < 1:
        raise RunError(f"the environment variable `WORLD_SIZE` is `{stated}`, not a number of processes")
    return int(stated)


@cache
def _capability(visible: str | None) -> int:
    device = _first_visible(visible)
    if device is None or not _torch_has_cuda():
        return 0
    return nvml.capability(device) or 0


def _first_visible(visible: str | None) -> int | str | None:
    """The device that CUDA calls 0: an index, a UUID, or None where all are hidden.

    CUDA stops at the first entry that names no device, so an empty or negative first entry hides everything."""
    if visible is None:
        return 0
    first = visible.split(",")[0].strip()
    if first.isdigit():
        return int(first)
    return first if re.match(r"(GPU|MIG)-", first) else None


def _torch_has_cuda() -> bool:
    """Whether the installed torch is built for CUDA, judged by its version: wheels for CPU and ROCm say so."""
    try:
        build = version("torch").partition("+")[2]
    except PackageNotFoundError:
        return False
    return not build.startswith(("cpu", "rocm", "xpu"))
