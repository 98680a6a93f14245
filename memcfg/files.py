"""Where files lie and how they are written.

A file is written beside its destination and renamed over it, so that a reader (or an interrupt) never sees half of one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from memcfg.errors import Problem, RunError

LOCK: Final = ".lock"
"""Held, in a folder, by the process that runs there."""


def conf_root() -> Path:
    """The folder of the first-party config groups: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "_conf"
    return installed if installed.is_dir() else package.parent / "conf"


def write_atomic(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write `content` (text as UTF-8) to `path`, whole or not at all. Raises `RunError` naming the path."""
    target = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        _write_beside(target, data)
    except OSError as error:
        raise RunError(f"cannot write `{target}`: {reason(error)}") from error
    return target


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a folder against other runs. A process that is killed holds nothing; one that holds it may claim it again.

    Raises `RunError` where another process has it."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, timeout=0, is_singleton=True)
    try:
        lock.acquire()
    except Timeout as error:
        fix = "wait for it, or choose another `run.dir`"
        raise RunError(Problem(f"another run is using `{folder}`", key="run.dir", fix=fix)) from error
    try:
        yield
    finally:
        if lock.lock_counter == 1:
            with suppress(OSError):
                os.unlink(folder / LOCK)
        lock.release()


def _write_beside(target: Path, data: bytes) -> None:
    descriptor, scratch = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(scratch, 0o666 & ~_umask())  # mkstemp made it private; a result is as readable as any other file
        os.replace(scratch, target)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def unprivate(folder: Path) -> None:
    """Make every file in a folder as readable as the umask lets a new one be: some libraries write private ones."""
    mode = 0o666 & ~_umask()
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            os.chmod(file, file.stat().st_mode | mode)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def reason(error: OSError) -> str:
    """What the operating system said, in the lower case that messages use."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
