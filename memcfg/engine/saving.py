"""Folders that appear whole or not at all, and what a full or unwritable disk is called."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from memcfg.engine.checkpoint import STALE, removed
from memcfg.errors import Problem, RunError
from memcfg.files import claimed, reason, unprivate

PARTIAL = ".partial"
"""Where a folder lies while it is written; hidden, so that nothing takes it for finished."""

PROBE_BYTES = 64 * 1024
"""A disk may have room for a file's name and none for its content."""


@contextmanager
def run_folder(folder: Path, *, used: bool = False, main: bool = True) -> Iterator[None]:
    """The folder of a run, made if need be, tried for writing, and held against other runs. Taken away again if the run
    leaves nothing in it. What an earlier run was writing when it was killed is cleared away.

    `used`: it may hold a run, which is gone on with. Of several processes only the `main` one holds and clears it. Raises
    `RunError` naming `run.dir` where it cannot be used, is in use, or holds a run."""
    made = not folder.exists()
    try:
        _try_writing(folder)
        with claimed(folder) if main else nullcontext():
            if (folder / "metrics.jsonl").exists() and not used:
                text = f"`{folder}` already holds a run"
                raise RunError(
                    Problem(text, key="run.dir", fix="choose another `run.dir`, or go on: `run.resume=auto`")
                )
            if main:
                _clear(folder)
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


def _clear(folder: Path) -> None:
    for left in (PARTIAL, STALE):
        shutil.rmtree(folder / left, ignore_errors=True)


@contextmanager
def whole(target: Path, *, main: bool = True) -> Iterator[Path]:
    """A folder to write, which becomes `target` at the end. After any error nothing of it is left.

    In a distributed run only the `main` process moves and clears. Raises `RunError` where the disk is at fault."""
    scratch = target.parent / PARTIAL
    try:
        yield scratch / target.name
        if main:
            unprivate(scratch / target.name)
            if target.exists():
                removed(target)
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
