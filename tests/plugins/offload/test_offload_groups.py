"""Limits of control groups, of both versions of the interface, with and without a container around."""

from __future__ import annotations

from pathlib import Path

import pytest
from memcfg_offload.groups import Limit, limits

TWO = {"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 5\ninactive_file 200\n"}
ONE = {
    "memory.limit_in_bytes": "900",
    "memory.usage_in_bytes": "600",
    "memory.stat": "inactive_file 1\ntotal_inactive_file 50\n",
}


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"": TWO}, [Limit(1000, 500)]),  # a container: the limit is at the top
        ("0::/job/step\n", {"job": TWO, "job/step": {"memory.max": "max", "memory.current": "1"}}, [Limit(1000, 500)]),
        ("0::/job\n", {"job": TWO, "": {**TWO, "memory.max": "800"}}, [Limit(1000, 500), Limit(800, 300)]),
        ("5:cpu:/x\n4:memory:/job\n", {"memory/job": ONE}, [Limit(900, 350)]),  # the older interface
        ("4:memory:/of/the/host\n", {"memory": ONE}, [Limit(900, 350)]),  # a name that the container does not have
        ("0::/job\n", {}, []),
        (None, {}, []),
    ],
)  # fmt: skip
def test_the_limits_that_hold(
    own: str | None, files: dict[str, dict[str, str]], expected: list[Limit], tmp_path: Path
) -> None:
    for folder, contents in files.items():
        (tmp_path / "fs" / folder).mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (tmp_path / "fs" / folder / name).write_text(text)
    if own is not None:
        (tmp_path / "own").write_text(own)
    assert limits(tmp_path / "own", tmp_path / "fs") == expected
