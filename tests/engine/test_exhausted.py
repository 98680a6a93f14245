"""A device that runs out of memory: whatever torch raises becomes the error that memcfg explains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from memcfg.engine.execute import train
from memcfg.engine.exhausted import explained
from memcfg.errors import OutOfMemory

pytestmark = pytest.mark.torch


def raised(error: Exception) -> Exception:
    with pytest.raises(Exception) as caught, explained("cpu", lambda: "in step 3", lambda: [[4, 5], [9]]):
        raise error
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_what_means_that_memory_ran_out(error: Exception) -> None:
    found = raised(error)
    assert isinstance(found, OutOfMemory)
    assert found.__cause__ is error
    assert str(found).startswith(f"out of memory in step 3: {str(error).splitlines()[0].rstrip('. ')}\n")
    assert (found.lengths, found.room_bytes) == (((4, 5), (9,)), None)


@pytest.mark.parametrize("error", [RuntimeError("shapes do not match"), ValueError("CUDA error: out of memory")])
def test_other_errors_pass(error: Exception) -> None:
    assert raised(error) is error


def test_weights_that_do_not_fit_are_told_like_a_step_that_does_not(bench: Any, tmp_path: Path) -> None:
    def full(plan: Any, device: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(OutOfMemory, match="out of memory while the model was prepared: CUDA out of memory"):
        train(bench.plan(), bench.Hooks(load_model=full), tmp_path / "run")
