"""What the environment says about offloading."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def rehearsal(values: Mapping[str, Any]) -> bool:
    """Whether copies are wanted where they free nothing, so that they can be tested without an accelerator."""
    return os.environ.get("MEMCFG_OFFLOAD_REHEARSAL") == "1"
