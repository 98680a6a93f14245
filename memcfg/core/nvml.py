"""What the NVIDIA driver says of its devices, asked through the driver's own library: no torch, no CUDA context.

Without the library nothing is seen. NVML counts every device of the machine; `CUDA_VISIBLE_DEVICES` is applied by the
caller. A call takes a few milliseconds, most of it NVML's own start.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

LIBRARIES: Final = ("libnvidia-ml.so.1", "libnvidia-ml.so", "nvml.dll")


def _library() -> ctypes.CDLL | None:
    for name in LIBRARIES:
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


@contextmanager
def _session() -> Iterator[ctypes.CDLL | None]:
    """The initialised library, or None where there is no (working) driver."""
    library = _library()
    if library is None or library.nvmlInit_v2() != 0:
        yield None
        return
    try:
        yield library
    finally:
        library.nvmlShutdown()


def _handle(library: ctypes.CDLL, device: int | str) -> ctypes.c_void_p | None:
    """A device by index, or by the UUID (whole, or its beginning) that `CUDA_VISIBLE_DEVICES` may hold."""
    handle = ctypes.c_void_p()
    if isinstance(device, int):
        failed = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(device), ctypes.byref(handle))
        return None if failed else handle
    if library.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(handle)) == 0:
        return handle
    return next((h for h in _handles(library) if _uuid(library, h).startswith(device)), None)


def _handles(library: ctypes.CDLL) -> Iterator[ctypes.c_void_p]:
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        handle = _handle(library, index)
        if handle is not None:
            yield handle


def _uuid(library: ctypes.CDLL, handle: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(96)
    library.nvmlDeviceGetUUID(handle, text, ctypes.c_uint(len(text)))
    return text.value.decode(errors="replace")


def capability(device: int | str) -> int | None:
    """Compute capability of a device times ten; None where the driver knows no such device."""
    with _session() as library:
        handle = library and _handle(library, device)
        if not library or not handle:
            return None
        major, minor = ctypes.c_int(), ctypes.c_int()
        failed = library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
        return None if failed else 10 * major.value + minor.value


class Seen(NamedTuple):
    """A device as the driver describes it: its product name and its memory in bytes."""

    name: str
    memory: int


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def seen(device: int | str) -> Seen | None:
    """What the driver says of a device; None where it knows no such device."""
    with _session() as library:
        handle = library and _handle(library, device)
        if not library or not handle:
            return None
        text, memory = ctypes.create_string_buffer(96), _Memory()
        if library.nvmlDeviceGetName(handle, text, ctypes.c_uint(len(text))) != 0:
            return None
        failed = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        return None if failed else Seen(text.value.decode(errors="replace"), int(memory.total))
