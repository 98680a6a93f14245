"""Which files the config groups hold, found without Hydra, which takes its time."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

from memcfg.files import conf_root


def group_names(folders: Iterable[Path]) -> dict[str, list[str]]:
    """Config group -> its names, over first-party and other folders."""
    return groups_in([conf_root(), *folders])


def groups_in(folders: Iterable[Path]) -> dict[str, list[str]]:
    """Config group -> its names, over these folders."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        for file in folder.glob("*/*.yaml"):
            found.setdefault(file.parent.name, set()).add(file.stem)
    return {group: sorted(names) for group, names in sorted(found.items())}


def conf_folders(paths: Iterable[str]) -> Iterator[Path]:
    """The folders of plugins' search paths. Their packages are only looked up; a package's own parent is imported."""
    for path in paths:
        scheme, _, rest = path.partition("://")
        if scheme == "file" or not rest:
            yield Path(rest or path)
        elif scheme == "pkg":
            spec = importlib.util.find_spec(rest.replace("/", "."))
            yield from map(Path, (spec.submodule_search_locations if spec else None) or ())
