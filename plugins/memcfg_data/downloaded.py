"""Data sets of the hub that were downloaded before, looked for without loading anything."""

from __future__ import annotations

import os
from pathlib import Path

from memcfg import DataError, Problem

FIX = "give a file or folder (`data=jsonl`, `data=parquet`), or load it once where there is a network"


def missing(name: str) -> DataError:
    """The error for a name that nothing here knows."""
    text = f"`{name}` is not in the cache of `datasets`, and the hub cannot be reached from here"
    return DataError(Problem(text, "data.path", fix=FIX))


def there(name: str) -> bool:
    """Whether something of this name was downloaded: prepared by `datasets`, or as the hub's own files."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    prepared = Path(os.environ.get("HF_DATASETS_CACHE", home / "datasets")).expanduser()
    fetched = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    wanted = {_plain(name.replace("/", "___")), _plain("datasets--" + name.replace("/", "--"))}
    folders = [path for parent in (prepared, fetched) if parent.is_dir() for path in parent.iterdir()]
    return any(_plain(path.name) in wanted for path in folders)


def _plain(name: str) -> str:
    """A name without what `datasets` does to capitals."""
    return name.lower().replace("_", "")
