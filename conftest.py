"""What is collected: with `-m "not torch"`, nothing that loads torch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NEEDS_TORCH = re.compile(r"^(pytestmark = .*mark\.torch|import torch)", re.MULTILINE)
"""What a module says of itself whose tests all load torch, and the conftest of a folder of such modules."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m "not torch"`, what is marked whole is not even imported: that alone takes seconds."""
    module = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    if "not torch" not in config.option.markexpr or module.suffix != ".py" or not module.is_file():
        return None
    return True if NEEDS_TORCH.search(module.read_text(encoding="utf-8")) else None
