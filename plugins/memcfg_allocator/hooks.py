"""Sets up torch's CUDA allocator, and reads back what it does.

The allocator reads its settings from the environment when torch is loaded, and a plugin's hooks are imported before that:
so importing this module is what sets them. Where something loaded torch earlier, the running allocator is told."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from memcfg import Plan, Problem, RunError, hookimpl
from memcfg.engine.evidence import Effective

VARIABLES: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""What torch reads; the second is its older name."""

SETTING: Final = "expandable_segments:True"


def with_setting(before: str | None) -> str:
    """The variable's value with the setting in it; other settings stay."""
    others = [part for part in (before or "").split(",") if part and not part.startswith("expandable_segments:")]
    return ",".join([*others, SETTING])


def _apply() -> None:
    name = next((variable for variable in VARIABLES if variable in os.environ), VARIABLES[0])
    os.environ[name] = with_setting(os.environ.get(name))
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        _tell(torch, os.environ[name])


def _tell(torch: Any, settings: str) -> None:
    try:
        torch.cuda.memory._set_allocator_settings(settings)
    except (AttributeError, RuntimeError, ValueError) as error:
        text = f"torch was loaded before its allocator could be set up: {error}"
        raise RunError(Problem(text, key="allocator.expandable", fix=f"export {VARIABLES[0]}={SETTING}")) from error


_apply()


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """Whether the segments that the allocator holds can grow."""
    import torch

    segments = torch.cuda.memory_snapshot() if torch.cuda.is_available() else []  # type: ignore[no-untyped-call]
    grow = sum(bool(segment.get("is_expandable")) for segment in segments)
    text = f"{grow} of {len(segments)} segments of the allocator can grow"
    return [*found, Effective("allocator.expandable", grow > 0, text)]
