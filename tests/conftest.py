"""One cache folder for the whole session, so that tests neither read nor fill the user's own; what is expensive to make
(the standard library's rows) is made once, by whichever worker comes first."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`MEMCFG_CACHE` in the session's folder, which the workers of one session share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    before = os.environ.get("MEMCFG_CACHE")
    os.environ["MEMCFG_CACHE"] = str(shared / "memcfg-cache")
    yield
    if before is None:
        del os.environ["MEMCFG_CACHE"]
    else:
        os.environ["MEMCFG_CACHE"] = before


@pytest.fixture(scope="session")
def whole_page() -> Callable[[str], Any]:
    """`whole_page(html)`: the page parsed and held to what every page promises (see `tests/whole_page.py`)."""
    spec = importlib.util.spec_from_file_location("whole_page", Path(__file__).with_name("whole_page.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["whole_page"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module.WholePage
