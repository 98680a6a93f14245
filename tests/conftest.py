"""One cache folder for the whole session, so that tests neither read nor fill the user's own; what is expensive to make
(the standard library's rows) is made once, by whichever worker comes first."""

from __future__ import annotations

import os
from collections.abc import Iterator

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
