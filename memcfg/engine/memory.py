"""The peak memory that a run really used."""

from __future__ import annotations

import sys
from typing import Any


def reset_peak(device: str) -> None:
    """Start the measurement anew, where the platform can."""
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()


def measured(device: str) -> dict[str, Any]:
    """`peak_bytes` and what it is: CUDA's allocated peak since `reset_peak` (and `reserved_bytes`), or on a CPU the
    process's largest resident set since it started, which holds imports and data preparation too."""
    if device == "cuda":
        import torch

        return {
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
            "source": "cuda allocated",
        }
    return {"peak_bytes": _peak_resident(), "source": "resident set of the process"}


def _peak_resident() -> int:
    try:
        import resource
    except ImportError:  # Windows has no rusage; psutil comes with accelerate
        import psutil

        info = psutil.Process().memory_info()
        return int(getattr(info, "peak_wset", info.rss))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
