"""Which files a name means: one file, all files of a folder, or those that a pattern matches."""

from __future__ import annotations

import difflib
import glob
import hashlib
from collections.abc import Sequence
from pathlib import Path

from memcfg import DataError, Problem

SUFFIXES = {"jsonl": (".jsonl", ".ndjson"), "parquet": (".parquet",)}
"""What the files of a source are called."""


def found(name: str, option: str, source: str) -> list[Path]:
    """The files that `name` means, in the order of their names. Raises `DataError` where there is none, or an empty one."""
    path = Path(name).expanduser()
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES[source] and p.is_file())
        if not files:
            endings = " or ".join(f"`*{suffix}`" for suffix in SUFFIXES[source])
            raise DataError(Problem(f"the folder `{path}` has no file {endings}", option))
    elif glob.has_magic(name) and not path.exists():
        files = sorted(Path(p) for p in glob.glob(str(path), recursive=True) if Path(p).is_file())
        if not files:
            raise DataError(Problem(f"no file matches `{name}` (in `{Path.cwd()}`)", option))
    else:
        files = [_one(path, option)]
    if empty := next((file for file in files if file.stat().st_size == 0), None):
        raise DataError(Problem(f"`{empty}` is empty", option))
    return files


def identity(files: Sequence[Path], *about: object) -> str:
    """A name for what these files hold now, and for what else is said of how they are read."""
    digest = hashlib.blake2b(digest_size=12)
    for file in files:
        state = file.stat()
        digest.update(f"{file.resolve()} {state.st_size} {state.st_mtime_ns} {state.st_ino}\n".encode())
    digest.update(repr(about).encode())
    return digest.hexdigest()


def _one(path: Path, option: str) -> Path:
    if not path.exists():
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = tuple(str(path.with_name(n)) for n in difflib.get_close_matches(path.name, names, n=2))
        raise DataError(Problem(f"no such file: `{path}` (in `{Path.cwd()}`)", option, nearest=near))
    return path
