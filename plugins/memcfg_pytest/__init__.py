"""memcfg's plugin for pytest: the fixture `lab`, for the tests of plugins.

pytest loads this module in every project of the environment, so it imports nothing until a test asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from memcfg.testing import Lab


@pytest.fixture
def lab() -> Lab:
    """A registry of memcfg's core alone, to which a test adds plugins: see `memcfg.testing`."""
    from memcfg.testing import Lab

    return Lab()
