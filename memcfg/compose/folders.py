"""The folders of config groups that are in sight, in the order in which they are looked through."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

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

YOURS: Final = ("command-line", "hydra.searchpath")
"""Who provides the folders that a user names."""
OWN: Final = ("hydra", "main")
"""Who provides Hydra's own and memcfg's own."""


class Folders(ConfigRepository):
    """Hydra's repository, which Hydra copies for every question because `hydra.searchpath` could change it; here the
    search path is complete from the start, and copying would take a fifth of the time of composing.

    Hydra asks the disk about each file five times, in every folder, for every group of every request. Here what lies in
    installed packages is listed once; folders that a user names are looked at each time."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self._listings: dict[tuple[str, str, ObjectType | None], frozenset[str]] = {}

    def __deepcopy__(self, memo: object) -> Folders:
        return self

    def get_group_options(
        self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG
    ) -> list[str]:  # fmt: skip
        """What Hydra's own would list."""
        return sorted({name for source in self.sources for name in self._names(source, group_name, results_filter)})

    def _find_object_source(self, config_path: str, object_type: ObjectType | None) -> ConfigSource | None:
        if object_type is not ObjectType.CONFIG:
            return super()._find_object_source(config_path, object_type)
        return next((source for source in self.sources if self._holds(source, config_path)), None)

    def _holds(self, source: ConfigSource, path: str) -> bool:
        if source.provider in YOURS or source.scheme() == "structured":
            return bool(source.is_config(path))
        group, _, name = path.rpartition("/")
        return name.removesuffix(".yaml") in self._names(source, group, ObjectType.CONFIG)

    def _names(self, source: ConfigSource, group: str, kind: ObjectType | None) -> frozenset[str]:
        """What a folder has of this kind in a group."""
        if source.provider in YOURS or source.scheme() == "structured":
            return self._listed(source, group, kind)
        known = _STANDING if source.provider in OWN else self._listings
        key = (source.path, group, kind)
        if key not in known:
            known[key] = self._listed(source, group, kind)
        return known[key]

    def _listed(self, source: ConfigSource, group: str, kind: ObjectType | None) -> frozenset[str]:
        if source.scheme() == "file":
            return frozenset(_in_folder(Path(source.path, group), kind))
        parent, _, name = group.rpartition("/")
        there = name in self._names(source, parent, ObjectType.GROUP) if group else source.is_group(group)
        return frozenset(source.list(group, kind)) if there else frozenset()


_STANDING: Final[dict[tuple[str, str, ObjectType | None], frozenset[str]]] = {}
"""What Hydra and memcfg themselves bring, which stays as it is as long as the process lasts."""


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


def _in_folder(folder: Path, kind: ObjectType | None) -> Iterator[str]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and entry.name != "__pycache__" and kind is not ObjectType.CONFIG:
                yield entry.name
            elif entry.name.endswith(".yaml") and kind is not ObjectType.GROUP and entry.is_file():
                yield entry.name.removesuffix(".yaml")
