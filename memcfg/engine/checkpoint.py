"""Checkpoints as folders: what makes one whole, which is the newest, and which may go.

checkpoint-N/   model, optimizer, schedule and random streams as Transformers writes them
    resolved.yaml     the plan
    NAME.json, NAME.pt  whatever else has a state: the place in the data, the ledger (see `memcfg.engine.kept`)
    checkpoint.json   written last: the step, what the data were, and every other file with its size and checksum
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memcfg.files import write_atomic

MANIFEST = "checkpoint.json"
PREFIX = "checkpoint-"
FORM = 2
STALE = ".stale"
"""Where a checkpoint lies that is being removed; hidden, so that nothing takes it for one."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint. `data` says what rows it was trained on, as `memcfg.engine.fingerprint` gives it."""

    path: Path
    step: int
    data: Mapping[str, Any] = field(default_factory=dict)


class Torn(Exception):
    """A folder that is no whole checkpoint, and why."""


def read(path: Path, *, sums: bool = False) -> Checkpoint:
    """The checkpoint in a folder. Raises `Torn` where something of it is missing or, by `sums`, is not what was written:
    that reads every file, so it is for a checkpoint that is about to be used."""
    file = path / MANIFEST
    if not file.is_file():
        raise Torn(f"it has no `{MANIFEST}`, which is written last")
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        form, step, files, data = said["form"], int(said["step"]), dict(said["files"]), dict(said["data"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Torn(f"its `{MANIFEST}` cannot be read") from error
    if form != FORM:
        raise Torn(f"it has form {form}, and this memcfg reads form {FORM}")
    for name, (size, checksum) in files.items():
        if not (path / name).is_file():
            raise Torn(f"it lacks `{name}`")
        if (found := (path / name).stat().st_size) != size:
            raise Torn(f"`{name}` has {found:,} of its {size:,} bytes")
        if sums and checksum_of(path / name) != checksum:
            raise Torn(f"`{name}` is not what was written")
    return Checkpoint(path, step, data)


def seal(path: Path, step: int, data: Mapping[str, Any]) -> None:
    """Declare a checkpoint whole: everything in it is on the disk, and listed with its size and checksum."""
    files = {file.relative_to(path).as_posix(): file for file in sorted(path.rglob("*")) if file.is_file()}
    for file in files.values():
        _to_disk(file)
    listed = {name: (file.stat().st_size, checksum_of(file)) for name, file in files.items()}
    said = {"form": FORM, "step": step, "data": dict(data), "files": listed}
    write_atomic(path / MANIFEST, json.dumps(said, indent=1) + "\n")


def checksum_of(file: Path) -> int:
    """CRC-32 of a file, read in pieces: for what a disk got wrong, not against who means harm."""
    checksum = 0
    with file.open("rb") as stream:
        while piece := stream.read(1 << 24):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def found(folder: Path) -> tuple[list[Checkpoint], dict[Path, str]]:
    """The whole checkpoints of a run, oldest first, and the torn ones with the reason."""
    whole: list[Checkpoint] = []
    torn: dict[Path, str] = {}
    for path in folder.glob(f"{PREFIX}*"):
        try:
            whole.append(read(path))
        except Torn as error:
            torn[path] = str(error)
    return sorted(whole, key=lambda checkpoint: checkpoint.step), dict(sorted(torn.items()))


def prune(folder: Path, keep: int) -> None:
    """Remove all whole checkpoints but the newest `keep`. Each disappears at once, not file by file."""
    whole, _ = found(folder)
    for checkpoint in whole[:-keep]:
        removed(checkpoint.path)


def removed(path: Path) -> None:
    """Take a folder away, hidden first."""
    stale = path.parent / STALE
    shutil.rmtree(stale, ignore_errors=True)
    os.replace(path, stale)
    shutil.rmtree(stale, ignore_errors=True)


def _to_disk(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
