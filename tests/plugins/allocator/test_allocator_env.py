"""The setting is in the environment before torch is loaded, and other settings stay."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from memcfg import Plan

SCRIPT = """
import os, sys
import memcfg_allocator.hooks
assert "torch" not in sys.modules
print(os.environ.get("PYTORCH_ALLOC_CONF"), os.environ.get("PYTORCH_CUDA_ALLOC_CONF"))
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "expandable_segments:True None"),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, "max_split_size_mb:64,expandable_segments:True None"),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:False"}, "expandable_segments:True None"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, "None max_split_size_mb:64,expandable_segments:True"),
    ],
)
def test_the_variable_is_set_without_loading_torch(before: dict[str, str], after: str) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTORCH_")}
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=kept | {"PYTHONPATH": path} | before,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == after


@pytest.mark.torch
def test_without_a_segment_that_grows_the_evidence_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.setenv(name, "")  # put back what the import changes
    import torch
    from memcfg_allocator.hooks import memcfg_evidence

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for segments, grow in (([], False), ([{"is_expandable": False}], False), ([{"is_expandable": True}, {}], True)):
        monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda segments=segments: segments)
        (found,) = memcfg_evidence(plan=Plan({}), run=None, found=[])
        assert found.effective is grow
