"""What is collected, and in which order: with `-m "not torch"` nothing that loads torch; slow files first."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

if os.environ.get("PYTEST_XDIST_WORKER"):  # a worker to a core: more threads of torch would only wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Every process that a test starts would compile memcfg's sources anew, which takes longer than what it does.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

NEEDS_TORCH = re.compile(r"^(pytestmark = .*mark\.torch|import torch)", re.MULTILINE)
"""What a module says of itself whose tests all load torch, and the conftest of a folder of such modules."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m "not torch"`, what is marked whole is not even imported: that alone takes seconds."""
    return True if "not torch" in config.option.markexpr and _needs_torch(collection_path) else None


def _needs_torch(path: Path) -> bool:
    module = path / "conftest.py" if path.is_dir() else path
    return module.suffix == ".py" and module.is_file() and bool(NEEDS_TORCH.search(module.read_text(encoding="utf-8")))


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order below where files are dealt to workers; xdist would begin with those that have the most tests."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: whole files go to a worker, and a long one that is begun last is waited for alone."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Hold tests that say nothing of torch to it: importing it takes longer than all of them together."""
    named = (Path(argument.partition("::")[0]) for argument in session.config.args)  # what is named is imported anyway
    if "not torch" in session.config.option.markexpr and "torch" in sys.modules and not any(map(_needs_torch, named)):
        raise pytest.UsageError(
            "a module that is not marked `torch` imports it: see `python -X importtime -m pytest ...`"
        )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of a GPU need one."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no GPU")
