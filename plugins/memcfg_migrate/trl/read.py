"""A file with a config of TRL, whatever its form."""

from __future__ import annotations

from pathlib import Path

from memcfg_migrate.hf import DUMPED
from memcfg_migrate.reading import mapping
from memcfg_migrate.said import Source, equal
from memcfg_migrate.trl import script
from memcfg_migrate.trl.trainers import TRAINERS


def source(path: Path, chosen: str | None) -> Source:
    """What the file says. Raises `RequestError` where it cannot be read or says nothing."""
    if path.suffix == ".py":
        return script.read(path, chosen)
    found = mapping(path)
    found.given = {n: g for n, g in found.given.items() if not (n in DUMPED and equal(g.value, DUMPED[n]))}
    if chosen is not None:
        found.trainers = (TRAINERS[chosen].config,)
    return found
