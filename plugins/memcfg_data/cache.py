"""The user's cache folder, where rows that were read and parsed once are kept.

`MEMCFG_CACHE` names it; otherwise it is `memcfg` under `XDG_CACHE_HOME`, or in the platform's own place.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def folder() -> Path:
    """The cache folder; it need not exist yet."""
    if named := os.environ.get("MEMCFG_CACHE"):
        return Path(named).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "memcfg"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "memcfg"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "memcfg"
    return Path.home() / ".cache" / "memcfg"


def entry(name: str) -> Path:
    """Where the rows of one source are kept."""
    return folder() / f"{name}.arrow"
