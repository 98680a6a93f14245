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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from memcfg.files import reason, write_atomic

MANIFEST = "checkpoint.json"
PREFIX = "checkpoint-"
FORM = 3
STALE = ".stale"
"""Where a checkpoint lies that is being removed; hidden, so that nothing takes it for one."""

PIECE: Final = 2**20
"""Bytes that are read at a time: what fits a processor's cache is not fetched from memory twice."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint. `data` says what rows it was trained on, as `memcfg.engine.fingerprint` gives it."""

    path: Path
    step: int
    data: Mapping[str, Any] = field(default_factory=dict)


class Torn(Exception):
    """A folder that is no whole checkpoint, and why."""


def read(path: Path, sums: Sums | None = None) -> Checkpoint:
    """The checkpoint in a folder. Raises `Torn` where something of it is missing or, by `sums`, is not what was written:
    those read every file, so they are for a checkpoint that is about to be used."""
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
        if sums is not None and _sum(path / name, sums) != checksum:
            raise Torn(f"`{name}` is not what was written")
    return Checkpoint(path, step, data)


def seal(path: Path, step: int, data: Mapping[str, Any]) -> None:
    """Declare a checkpoint whole: everything in it is on the disk, and listed with its size and checksum."""
    files = {file.relative_to(path).as_posix(): file for file in sorted(path.rglob("*")) if file.is_file()}
    with ThreadPoolExecutor(1) as disk:  # while the disk takes them, they are read through in memory
        written = [disk.submit(_to_disk, file) for file in files.values()]
        listed = {name: (file.stat().st_size, checksum_of(file)) for name, file in files.items()}
        for waited in written:
            waited.result()
    said = {"form": FORM, "step": step, "data": dict(data), "files": listed}
    write_atomic(path / MANIFEST, json.dumps(said, indent=1) + "\n")


def checksum_of(file: Path) -> str:
    """XXH3 of a file, 64 bits in hexadecimal: for what a disk got wrong, not against who means harm.

    The file is read, not mapped: a fault of the disk is then an `OSError`, and not the end of the process."""
    from xxhash import xxh3_64

    checksum, piece = xxh3_64(), memoryview(bytearray(PIECE))
    with file.open("rb", buffering=0) as stream:
        while size := stream.readinto(piece):
            checksum.update(piece[:size])
    return checksum.hexdigest()


class Sums:
    """Checksums of files by their path, each found once. `known` may be handed to another process that sees the files."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def __call__(self, file: Path) -> str:
        """Raises `OSError` where the file cannot be read."""
        if str(file) not in self.known:
            self.known[str(file)] = checksum_of(file)
        return self.known[str(file)]


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


def _sum(file: Path, sums: Sums) -> str:
    try:
        return sums(file)
    except OSError as error:
        raise Torn(f"`{file.name}` cannot be read: {reason(error)}") from error


def _to_disk(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
