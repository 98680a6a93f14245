"""Limits that control groups put on this process's memory: its own group's and those of every group around it, of both versions
of the interface. Schedulers and containers set them, and psutil does not know of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOUNT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Limit:
    """Bytes that a group may use, and those of them that are left: what it holds of files that would be dropped is not used."""

    total: int
    free: int


@dataclass(frozen=True)
class Names:
    """What the files of one version of the interface are called."""

    limit: str
    used: str
    cached: str


TWO: Final = Names("memory.max", "memory.current", "inactive_file")
ONE: Final = Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def limits(own: Path = OWN, mount: Path = MOUNT) -> list[Limit]:
    """Every limit that holds for this process."""
    return [limit for folder, names in _folders(own, mount) if (limit := _limit(folder, names)) is not None]


def _folders(own: Path, mount: Path) -> Iterator[tuple[Path, Names]]:
    """This process's groups and those around them. Within a container the names may be the host's: what is not there is
    passed over, and the outermost folder is the container's."""
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        top, names = (mount, TWO) if controllers == "" else (mount / "memory", ONE)
        inner = top / path.lstrip("/")
        yield from ((folder, names) for folder in (inner, *inner.parents) if folder == top or top in folder.parents)


def _limit(folder: Path, names: Names) -> Limit | None:
    total, used = _text(folder / names.limit).strip(), _text(folder / names.used).strip()
    if not (total.isdigit() and used.isdigit()):
        return None
    pairs = (line.split() for line in _text(folder / "memory.stat").splitlines())
    cached = next((int(pair[1]) for pair in pairs if pair[0] == names.cached), 0)
    return Limit(int(total), max(0, int(total) - int(used) + cached))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
