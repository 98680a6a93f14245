"""What torch raises where a device has too little memory, as the error that memcfg explains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch

from memcfg.engine import memory
from memcfg.errors import OutOfMemory

LIBRARIES: Final = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDA error: out of memory", "CUDNN_STATUS_ALLOC_FAILED")
"""What libraries say whose own allocations fail, which torch passes on as plain errors."""

Lengths = Sequence[Sequence[int]]


def ran_out(error: BaseException) -> bool:
    """Whether an error means that the device's memory was used up."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in LIBRARIES)


@contextmanager
def explained(device: str, when: Callable[[], str], lengths: Callable[[], Lengths] = tuple) -> Iterator[None]:
    """Raise `OutOfMemory` in place of such an error. `when` completes "out of memory ..."; `lengths` gives the documents of
    each row of the largest micro-batch so far."""
    try:
        yield
    except RuntimeError as error:
        if not ran_out(error):
            raise
        used = memory.measured(device)
        text = f"out of memory {when()}: {str(error).splitlines()[0].rstrip('. ')}"
        raise OutOfMemory(
            text, used["peak_bytes"], used.get("reserved_bytes", 0), lengths(), memory.room(device)
        ) from error
