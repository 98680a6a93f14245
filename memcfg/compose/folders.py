"""The folders of config groups that are in sight, in the order in which they are looked through."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hydra._internal.config_repository import ConfigRepository
from hydra._internal.utils import create_config_search_path
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from memcfg.errors import Problem, RequestError
from memcfg.files import conf_root

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.plugins.config_source import ConfigSource

YOURS = ("command-line", "hydra.searchpath")
"""Who provides the folders that a user names."""


class Folders(ConfigRepository):
    """Hydra's repository, which Hydra copies for every question because `hydra.searchpath` could change it; here the
    search path is complete from the start, and copying would take a fifth of the time of composing."""

    def __deepcopy__(self, memo: object) -> Folders:
        return self

    def get_group_options(
        self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG
    ) -> list[str]:  # fmt: skip
        """What Hydra's own would list. That asks the disk five times about each file, for every group of every request."""
        return sorted({name for source in self.sources for name in _listed(source, group_name, results_filter)})


class ThirdPartyFolders(SearchPathPlugin):
    """Puts the config folders of installed plugins on Hydra's search path."""

    paths: ClassVar[Sequence[str]] = ()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for path in self.paths:
            search_path.append(provider="memcfg plugin", path=path)


def search_path(plugin_folders: Sequence[str], config_dir: str | None, extra: Sequence[str]) -> ConfigSearchPath:
    """Hydra, first-party groups, plugins, the user's folders. The first that has a file wins, so none can be replaced."""
    ThirdPartyFolders.paths = tuple(plugin_folders)
    Plugins.instance().register(ThirdPartyFolders)
    path = create_config_search_path(str(conf_root()))
    schema = path.get_path().pop()
    if config_dir is not None:
        path.append("command-line", f"file://{os.path.abspath(config_dir)}")
    for folder in extra:
        path.append("hydra.searchpath", folder if "://" in folder else f"file://{os.path.abspath(folder)}")
    path.append(schema.provider, schema.path)
    return path


def check_folders(sources: Sequence[ConfigSource], config_dir: str | None, extra: Sequence[str]) -> None:
    """Raises `RequestError` for a folder that is not there, and for a file of the user's that would never be read."""
    if config_dir is not None and not Path(config_dir).is_dir():
        raise RequestError(Problem(f"no such folder: `{config_dir}`", key="--config-dir"))
    named = [source for source in sources if source.provider == "hydra.searchpath"]
    missing = [said for said, source in zip(extra, named, strict=True) if not source.available()]
    if missing:
        raise RequestError(*(Problem(f"no such folder: `{folder}`", key="hydra.searchpath") for folder in missing))
    hidden = list(_hidden(sources))
    if hidden:
        raise RequestError(*hidden)


def _hidden(sources: Sequence[ConfigSource]) -> Iterator[Problem]:
    """Files of the user's folders whose name an earlier folder has."""
    for index, source in enumerate(sources):
        if source.provider not in YOURS:
            continue
        for name in _files(source, ""):
            if any(earlier.is_config(name) for earlier in sources[:index]):
                text = "a config of this name is there already, and none can be replaced"
                fix = "give the file another name, and choose it by that"
                yield Problem(text, key=f"{source.path}/{name}.yaml", fix=fix)


def _files(source: ConfigSource, parent: str) -> Iterator[str]:
    """`group/name` of every config in a folder's groups."""
    for group in source.list(parent, ObjectType.GROUP):
        path = f"{parent}/{group}" if parent else group
        if not group.startswith(("_", ".")):
            yield from (f"{path}/{name.removesuffix('.yaml')}" for name in source.list(path, ObjectType.CONFIG))
            yield from _files(source, path)


def _listed(source: ConfigSource, group: str, kind: ObjectType | None) -> Iterable[str]:
    if source.scheme() == "file":
        return _in_folder(Path(source.path, group), kind)
    listed = _in_hydra if source.provider == "hydra" else _in_source
    return listed(source, group, kind)


def _in_source(source: ConfigSource, group: str, kind: ObjectType | None) -> Sequence[str]:
    return tuple(source.list(group, kind)) if source.is_group(group) else ()


_in_hydra = cache(_in_source)
"""Hydra's own configs, which stay as they are."""


def _in_folder(folder: Path, kind: ObjectType | None) -> Iterator[str]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and entry.name != "__pycache__" and kind is not ObjectType.CONFIG:
                yield entry.name
            elif entry.name.endswith(".yaml") and kind is not ObjectType.GROUP and entry.is_file():
                yield entry.name.removesuffix(".yaml")
