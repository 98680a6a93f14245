"""Folders that appear whole or not at all, and what a full or unwritable disk is called."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memcfg.errors import Problem, RunError
from memcfg.files import reason

PARTIAL = ".partial"
"""Where a folder lies while it is written; hidden, so that nothing takes it for finished."""

PROBE_BYTES = 64 * 1024
"""A disk may have room for a file's name and none for its content."""


@contextmanager
def run_folder(folder: Path) -> Iterator[None]:
    """The folder of a run, made if need be and tried for writing. Taken away again if the run leaves nothing in it.

    Raises `RunError` naming `run.dir` where it cannot be used, or already holds a run."""
    made = not folder.exists()
    try:
        _try_writing(folder)
        yield
    except BaseException:
        if made and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise


def _try_writing(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0" * PROBE_BYTES)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise RunError(_refused(folder, error)) from error
    if (folder / "metrics.jsonl").exists():
        raise RunError(Problem(f"`{folder}` already holds a run", key="run.dir", fix="choose another `run.dir`"))


@contextmanager
def whole(target: Path, *, main: bool = True) -> Iterator[Path]:
    """A folder to write, which becomes `target` at the end. After any error nothing of it is left.

    In a distributed run only the `main` process moves and clears. Raises `RunError` where the disk is at fault."""
    scratch = target.parent / PARTIAL
    try:
        yield scratch / target.name
        if main:
            shutil.rmtree(target, ignore_errors=True)
            os.replace(scratch / target.name, target)
    except Exception as error:
        if _disk(error):
            raise RunError(_refused(target, error)) from error
        raise
    finally:
        if main:
            shutil.rmtree(scratch, ignore_errors=True)


def _disk(error: Exception) -> bool:
    """Whether writing failed. safetensors and torch wrap the system's error in their own."""
    from safetensors import SafetensorError

    return isinstance(error, (OSError, SafetensorError)) or "PytorchStreamWriter" in str(error)


def _refused(path: Path, error: Exception) -> Problem:
    text = reason(error) if isinstance(error, OSError) else " ".join(str(error).split())
    return Problem(
        f"cannot write `{path}`: {text}", key="run.dir", fix="choose a `run.dir` with room that you may write"
    )
