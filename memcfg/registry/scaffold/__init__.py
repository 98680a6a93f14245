"""A package to start a plugin from: what it is made of, whether its name is free, and writing it.

The files lie in `templates`: those in `common` for every plugin, the others by its kind. In their text and their paths
`{{word}}` and `__word__` stand for what `words` gives."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memcfg.errors import Problem, RequestError, RunError
from memcfg.files import conf_root, reason

if TYPE_CHECKING:
    from memcfg.registry.registry import Registry

TEMPLATES: Final = Path(__file__).parent / "templates"
SUFFIX: Final = ".tmpl"
KINDS: Final[Mapping[str, str]] = {
    "loss": "a loss of each token, chosen by `loss=NAME`",
    "data": "something done to the rows, switched on by `NAME=on`",
}
LICENCES: Final[Mapping[str, str]] = {"apache-2.0": "Apache-2.0", "mit": "MIT", "none": ""}
"""What can be said on the command line, and how package metadata spells it."""


@dataclass(frozen=True)
class Scaffold:
    """A plugin that is to be written. `name` is the plugin's; its distribution and package are named after it."""

    name: str
    kind: str = "loss"
    licence: str = "apache-2.0"

    @property
    def package(self) -> str:
        return f"memcfg_{self.name}"

    @property
    def distribution(self) -> str:
        return self.package.replace("_", "-")

    @property
    def choice(self) -> str:
        """What a user types to choose it."""
        return f"loss={self.name}" if self.kind == "loss" else f"{self.name}=on"


# ------------------------------------------------------------------------------------------------------ is the name free


def check(scaffold: Scaffold, registry: Registry) -> None:
    """Raise `RequestError` where the name is no name for a plugin, or is taken."""
    for text, fix in _faults(scaffold.name, registry):
        raise RequestError(Problem(text, key=scaffold.name, fix=fix))
    for thing, word in (("package", scaffold.package), ("distribution", scaffold.distribution)):
        if _installed(thing, word):
            raise RequestError(Problem(f"a {thing} `{word}` is installed already", key=scaffold.name, fix=OTHER))


RESERVED: Final = ("assume", "experiment", "hydra", "local", "given", "memcfg", "plan", "sweep", "unset")
"""Words that mean something else on the command line or in messages."""
OTHER: Final = "choose another name"


def _faults(name: str, registry: Registry) -> Iterator[tuple[str, str]]:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        better = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        fix = f"write `{better}`" if re.fullmatch(r"[a-z][a-z0-9_]*", better) else "write a letter first"
        yield "a plugin's name is of lower-case letters, digits and `_`, and begins with a letter", fix
    elif keyword.iskeyword(name) or keyword.issoftkeyword(name):
        yield "a keyword of Python", OTHER
    elif name in sys.stdlib_module_names:
        yield "a module of Python's standard library", OTHER
    elif plugin := next((p for p in registry.plugins if p.name == name), None):
        yield f"a plugin of this name is installed already ({plugin.distribution} {plugin.version})", OTHER
    elif any(key.partition(".")[0] == name for key in registry.options):
        key = next(key for key in registry.options if key.partition(".")[0] == name)
        yield f"there are options of this name already, as `{key}` of plugin `{registry.owners[key]}`", OTHER
    elif name in {*RESERVED, *registry.groups(), *(folder.name for folder in conf_root().iterdir())}:
        yield "memcfg's own word, or a config group, has this name", OTHER
    elif name in registry.options["loss.type"].values if "loss.type" in registry.options else False:
        yield "there is a loss of this name already", OTHER
    elif _installed("package", name):
        yield "a package of this name is installed", OTHER


def _installed(thing: str, word: str) -> bool:
    try:
        return find_spec(word) is not None if thing == "package" else bool(distribution(word))
    except (PackageNotFoundError, ImportError, ValueError):
        return False


# --------------------------------------------------------------------------------------------------------------- writing


def files(scaffold: Scaffold) -> dict[str, str]:
    """The files of the package: text by path."""
    known = words(scaffold)
    found = {}
    for part in ("common", scaffold.kind):
        root = TEMPLATES / part
        for path in sorted(root.rglob(f"*{SUFFIX}")):
            name = str(path.relative_to(root)).removesuffix(SUFFIX)
            found[_filled(name, known, "__", "__")] = _filled(path.read_text(encoding="utf-8"), known)
    if scaffold.licence != "none":
        text = (TEMPLATES / "licences" / f"{scaffold.licence}{SUFFIX}").read_text(encoding="utf-8")
        found["LICENSE"] = _filled(text, known)
    return found


def words(scaffold: Scaffold) -> dict[str, str]:
    """What stands for what in the templates."""
    from memcfg import __version__

    spelt = LICENCES[scaffold.licence]
    summary = {"loss": "Token losses raised to a power", "data": "Drops documents that are too short to learn from"}
    return {
        "name": scaffold.name,
        "package": scaffold.package,
        "distribution": scaffold.distribution,
        "choice": scaffold.choice,
        "example": f"{scaffold.choice} {scaffold.name}.{'power=1.5' if scaffold.kind == 'loss' else 'min_tokens=8'}",
        "summary": f"{summary[scaffold.kind]}: a plugin of memcfg",
        "licence_line": f'license = "{spelt}"\n' if spelt else "",
        "memcfg_version": __version__,
        "year": str(date.today().year),
    }


def _filled(text: str, known: Mapping[str, str], left: str = "{{", right: str = "}}") -> str:
    for word, meaning in known.items():
        text = text.replace(f"{left}{word}{right}", meaning)
    return text


def write(scaffold: Scaffold, parent: Path) -> Path:
    """Write the package into a new folder of `parent`, whole or not at all. Raises `RunError`."""
    target = parent / scaffold.distribution
    if target.exists() or target.is_symlink():
        raise RunError(
            Problem("there is something of this name already", key=str(target), fix="`--into` another folder")
        )
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))
    except OSError as error:
        raise RunError(Problem(f"cannot be written to: {reason(error)}", key=str(parent))) from error
    try:
        _fill(scratch / target.name, files(scaffold))
        os.rename(scratch / target.name, target)
    except OSError as error:
        raise RunError(Problem(f"cannot be written: {reason(error)}", key=str(target))) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _fill(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
