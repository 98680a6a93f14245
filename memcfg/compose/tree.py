"""The config folders that one composition sees, and Hydra at work on them.

Everything that is said to Hydra itself is said here. Its loader is used directly rather than through `hydra.compose`,
which keeps a global and does not tell which file set a value; the loader below is Hydra's own with two additions: it
remembers every file that it merged, and it merges what was typed last (see `memcfg.compose.layers`).

hydra-core's internals that are relied on (1.3.2 to 1.3.8, the range that the package requires): the search path
builder, `ConfigLoaderImpl`, `create_defaults_list` and the fields of a defaults list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from hydra import version as hydra_version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.default_element import ConfigDefault, GroupDefault, InputDefault, ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from memcfg.compose.folders import Folders, check_folders, search_path
from memcfg.compose.layers import CHOSEN, COMMAND_LINE, PRESET, STORED, Layer
from memcfg.compose.translate import refusing
from memcfg.compose.values import MISSING, calls_code
from memcfg.compose.vocabulary import ASSUME, PRESETS, Vocabulary
from memcfg.errors import Note

if TYPE_CHECKING:
    from hydra._internal.config_repository import IConfigRepository
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

PRIMARY: Final = "memcfg"
"""Name of the generated primary config."""

STDERR: Final = {"console": {"stream": "ext://sys.stderr"}}
"""Talk goes to stderr: stdout is for plans."""

HYDRA: Final[dict[str, Any]] = {
    "job": {"name": "memcfg", "chdir": False},
    "hydra_logging": {"handlers": STDERR, "root": {"level": "WARNING"}},  # jobs are announced by memcfg itself
    "job_logging": {"handlers": STDERR},
}


class Lean(CachingConfigRepository):  # type: ignore[misc]
    """Holds a primary config that is in no folder: no option in it."""

    def __init__(self, folders: IConfigRepository, groups: tuple[str, ...]) -> None:
        super().__init__(folders)
        self.cache[f"config_path={PRIMARY}"] = ConfigResult(
            "memcfg", "structured://", OmegaConf.create({}), {"package": None}, list(_defaults(groups)), True
        )

    def config_exists(self, config_path: str) -> bool:
        return config_path == PRIMARY or bool(super().config_exists(config_path))


class Loader(ConfigLoaderImpl):  # type: ignore[misc]
    """Hydra's loader, which remembers the layers of its last composition."""

    def __init__(self, search_path: ConfigSearchPath, vocabulary: Vocabulary) -> None:
        super().__init__(config_search_path=search_path)
        self.repository = Folders(config_search_path=search_path)
        self.vocabulary = vocabulary
        self.layers: list[Layer] = []
        self.passed_over: list[Note] = []
        self.typed: dict[str, str] = {}
        self.names_hydra = False
        self.interpolates = False
        self.groups: tuple[str, ...] = ()

    def without_hydra(self, overrides: list[str]) -> DictConfig | None:
        """The composition without the node `hydra`, which takes longer than all else and which no plan looks at. None where
        something names that node, and where Hydra refuses: then the whole is to be composed, which says why."""
        if any("hydra" in line for line in overrides):
            return None
        if not any("${" in line for line in overrides):
            config = self._composed(overrides, lean=True)
            if config is None or not self.interpolates:
                return config
        return self._composed(overrides, lean=False)

    def _composed(self, overrides: list[str], *, lean: bool) -> DictConfig | None:
        """`lean`: of the options only those that are set, which is most of the work saved. An interpolation may look for one
        that is not."""
        try:
            if lean:
                parsed = OverridesParser.create().parse_overrides(overrides)
                repo: CachingConfigRepository = Lean(self.repository, self.groups)
            else:
                parsed, repo = self._parse_overrides_and_create_caching_repo(PRIMARY, overrides)
            self.validate_sweep_overrides_legal(parsed, RunMode.RUN, from_shell=False)
            found = create_defaults_list(repo, PRIMARY, parsed, prepend_hydra=False, skip_missing=False)
            self._begin(overrides)
            config = self._compose_config_from_defaults_list(found.defaults, repo)
            OmegaConf.set_struct(config, not lean)
            if lean and any(self.vocabulary.holder(said.key_or_group) is None for said in found.config_overrides):
                return None
            self._apply_overrides_to_config(found.config_overrides, config)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError):
            return None
        return None if self.names_hydra else config

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        primary = _primary(self.groups, frozenset(self.vocabulary.keys))
        ConfigStore.instance().repo[f"{PRIMARY}.yaml"] = (
            primary  # its `store` would make a copy; Hydra makes one as it reads
        )
        return super()._parse_overrides_and_create_caching_repo(config_name, overrides)  # type: ignore[no-any-return]

    def _load_configuration_impl(self, config_name: str | None, overrides: list[str], *rest: Any, **named: Any) -> Any:
        self._begin(overrides)
        return super()._load_configuration_impl(config_name, overrides, *rest, **named)

    def _begin(self, overrides: list[str]) -> None:
        lines = [line.lstrip("~").partition("=") for line in overrides]
        self.typed = {name: value for name, _, value in lines}
        self.layers, self.passed_over, self.names_hydra, self.interpolates = [], [], False, False

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        ranks = _ranks(defaults, self.typed)
        ordered = sorted(defaults, key=lambda default: ranks[id(default)])
        own = [d for d in ordered if not d.primary and not str(d.config_path).startswith("hydra/")]
        self.names_hydra |= len(own) + 1 < len(ordered)
        choices = [choice for d in own for choice in preset_choices(str(d.config_path), repo)]
        chosen_by = {f"{group}/{name}": origin for group, name, origin in choices}
        self.layers = [self._layer(default, ranks[id(default)], chosen_by, repo) for default in own]
        self.passed_over = [_passed_over(c, self.typed[c[0]]) for c in choices if self.typed.get(c[0], c[1]) != c[1]]
        return super()._compose_config_from_defaults_list(ordered, repo)

    def _layer(
        self, default: ResultDefault, rank: int, chosen_by: Mapping[str, str], repo: IConfigRepository
    ) -> Layer:  # fmt: skip
        path = str(default.config_path)
        loaded = self._load_single_config(default, repo)
        name = origin_of(loaded, path)
        if rank == CHOSEN:
            name = f"{COMMAND_LINE}, {name}"
        elif path in chosen_by:
            name = f"{name}, chosen by {chosen_by[path]}"
        values = _leaves(loaded.config, self.vocabulary)
        text = str(loaded.config)
        self.names_hydra |= "hydra" in text
        self.interpolates |= "${" in text
        asks = [key for key, value in values.items() if value == MISSING]
        given = {key: value for key, value in values.items() if key not in asks}
        return Layer(name, rank, given, _file(loaded, path), path, asks)


class Tree:
    """The groups and files in sight, and their composition under overrides that were already normalised."""

    def __init__(
        self, vocabulary: Vocabulary, plugin_folders: Sequence[str] = (), config_dir: str | None = None,
        searchpath: Sequence[str] = (),
    ) -> None:  # fmt: skip
        hydra_version.setbase("1.3")
        setup_globals()
        self.vocabulary = vocabulary
        self._set_by: dict[tuple[str, str], dict[str, Any]] = {}
        self.loader = Loader(search_path(plugin_folders, config_dir, searchpath), vocabulary)
        check_folders(self.loader.get_sources(), config_dir, searchpath)
        self.loader.groups = tuple(self.groups)

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Config group -> its names, Hydra's own groups left out."""
        return dict(self._below(""))

    def _below(self, parent: str) -> Iterable[tuple[str, tuple[str, ...]]]:
        sources = self.loader.repository
        for group in sources.get_group_options(parent, ObjectType.GROUP):
            path = f"{parent}/{group}" if parent else group
            if path == "hydra" or group.startswith(("_", ".")):
                continue
            names = tuple(sources.get_group_options(path, ObjectType.CONFIG))
            if names:
                yield path, names
            yield from self._below(path)

    def values(self, group: str, name: str) -> dict[str, Any]:
        """What the file of a group sets, by dotted key."""
        if (group, name) not in self._set_by:
            with refusing(f"{group}={name}"):
                default = ResultDefault(config_path=f"{group}/{name}", package=self._package(group, name))
                loaded = self.loader._load_single_config(default, self.loader.repository)
                self._set_by[group, name] = _leaves(loaded.config, self.vocabulary)
        return self._set_by[group, name]

    def plain_file(self, group: str, name: str) -> Layer | None:
        """What choosing a file on the command line sets, where that is all: it pulls in no other file, and none of its
        values is a mapping or read from elsewhere."""
        path = f"{group}/{name}"
        loaded = self.loader.repository.load_config(path)
        if loaded is None or any(isinstance(entry, GroupDefault) for entry in loaded.defaults_list or ()):
            return None
        values = self.values(group, name)
        if any(isinstance(value, (dict, list)) or "${" in str(value) or value == MISSING for value in values.values()):
            return None
        return Layer(f"{COMMAND_LINE}, {origin_of(loaded, path)}", CHOSEN, values, _file(loaded, path), path)

    def _package(self, group: str, name: str) -> str:
        loaded = self.loader.repository.load_config(f"{group}/{name}")
        header = loaded.header["package"] if loaded is not None else None
        own = group.replace("/", ".")
        return own if header is None else str(header).replace("_group_", own).replace("_global_", "")

    def compose(self, lines: Sequence[str], multirun: bool = False) -> tuple[DictConfig, list[Layer]]:
        """Hydra's composition and its layers, lowest first. Raises `RequestError` for what Hydra cannot compose."""
        mode = RunMode.MULTIRUN if multirun else RunMode.RUN
        if not multirun and (plain := self.loader.without_hydra(list(lines))) is not None:
            return plain, list(self.loader.layers)
        with refusing(asks=lambda wanted: self._asking(lines, wanted)):
            config = self.loader.load_configuration(PRIMARY, list(lines), run_mode=mode, from_shell=False)
        return config, list(self.loader.layers)

    def _asking(self, lines: Sequence[str], wanted: str) -> str | None:
        """The file of a chosen preset whose defaults list asks for a config."""
        chosen = [line.replace("=", "/", 1) for line in lines if line.partition("=")[0] in PRESETS]
        choices = [choice for path in chosen for choice in preset_choices(path, self.loader.repository)]
        return next((origin for group, name, origin in choices if f"{group}/{name}" == wanted), None)


@lru_cache(maxsize=16)
def _primary(groups: tuple[str, ...], keys: frozenset[str]) -> ConfigNode:
    """The primary config: every option missing, every group unset, presets last so that they may override."""
    before, presets = _ordered(groups)
    defaults: list[Any] = [*({group: None} for group in before), "_self_", *({group: None} for group in presets)]
    node = OmegaConf.create({"defaults": defaults, "hydra": HYDRA, **_nested(keys)})
    return ConfigNode(f"{PRIMARY}.yaml", node, None, None, "memcfg")


def _defaults(groups: tuple[str, ...]) -> Iterable[InputDefault]:
    """The same defaults list as Hydra reads it."""
    before, presets = _ordered(groups)
    yield from (GroupDefault(group=group) for group in before)
    yield ConfigDefault(path="_self_")
    yield from (GroupDefault(group=group) for group in presets)


def _ordered(groups: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Groups before the options themselves, and presets after them."""
    return [group for group in groups if group not in PRESETS], [group for group in PRESETS if group in groups]


# -------------------------------------------------------------------------------------------------------- layering


def origin_of(loaded: ConfigResult, config_path: str) -> str:
    """How a config file is called in messages."""
    scheme, _, folder = loaded.path.partition("://")
    if scheme == "pkg":
        return f"{config_path}.yaml of {folder.partition('.')[0]}"
    if loaded.provider == "main" or scheme != "file":
        return f"{config_path}.yaml"
    file = Path(folder) / f"{config_path}.yaml"
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


def _file(loaded: ConfigResult, config_path: str) -> Path | None:
    scheme, _, folder = loaded.path.partition("://")
    return Path(folder) / f"{config_path}.yaml" if scheme == "file" else None


def _ranks(defaults: Iterable[ResultDefault], typed: Mapping[str, str]) -> dict[int, int]:
    """The rank of every entry of the defaults list; a file that another file pulls in ranks as that one."""
    by_path: dict[str, int] = {}
    ranks: dict[int, int] = {}
    entries = list(defaults)
    for default in (*entries, *entries):  # twice: a parent may come after its child
        path = str(default.config_path)
        own = _rank(path, typed)
        inherited = by_path.get(str(default.parent), STORED) if not default.is_self else STORED
        by_path[path] = ranks[id(default)] = max(own, inherited, by_path.get(path, STORED))
    return ranks


def _rank(config_path: str, typed: Mapping[str, str]) -> int:
    group = config_path.rpartition("/")[0]
    if group in PRESETS:
        return PRESET
    return CHOSEN if group and group in typed else STORED


def preset_choices(config_path: str, repo: IConfigRepository) -> list[tuple[str, str, str]]:
    """What the defaults list of a preset chooses: group, name, and the preset's file."""
    loaded = repo.load_config(config_path) if config_path.rpartition("/")[0] in PRESETS else None
    if loaded is None:
        return []
    entries = [entry for entry in loaded.defaults_list or () if isinstance(entry, GroupDefault) and entry.group]
    return [(str(e.group).lstrip("/"), str(e.value), origin_of(loaded, config_path)) for e in entries]


def _passed_over(choice: tuple[str, str, str], typed: str) -> Note:
    group, name, origin = choice
    kept = f"`{typed}`" if typed else "left unset"
    return Note("note", "compose.layer", f"`{group}` is {kept} ({COMMAND_LINE}), not `{name}` ({origin})")


def _leaves(config: Any, vocabulary: Vocabulary) -> dict[str, Any]:
    """What a file says, by key."""
    if not OmegaConf.is_dict(config):
        return {}
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    hydra = plain.pop("hydra", None)
    if calls_code(hydra):
        plain["hydra"] = {"_target_": None}  # kept in sight, to be refused with everything else
    return dict(vocabulary.leaves(plain))


def _nested(keys: Iterable[str]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for key in sorted(keys):
        *sections, leaf = key.split(".")
        node: Any = root
        for section in sections:
            node = node.setdefault(section, {})
        node[leaf] = MISSING
    root.setdefault(ASSUME.rstrip("."), {})
    return root
