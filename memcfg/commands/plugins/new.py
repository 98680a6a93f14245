"""`memcfg plugins new NAME`: a package to start a plugin from."""

from __future__ import annotations

from pathlib import Path

from memcfg.commands.arguments import Arguments
from memcfg.commands.plugins import one_name
from memcfg.compose.spelling import nearest
from memcfg.errors import Problem, RequestError
from memcfg.report.console import Terminal
from memcfg.report.words import count, listed

USAGE = "write `memcfg plugins new NAME [--kind KIND] [--license LICENCE] [--into FOLDER]`"


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Write the package, and say what to do with it."""
    arguments.refuse_flags("json", "kind", "license", "into")
    name = one_name(arguments, USAGE)
    from memcfg.registry import load
    from memcfg.registry.scaffold import KINDS, LICENCES, Scaffold, check, files, write
    from memcfg.report import jsonform

    kind = _one_of("kind", arguments.values.get("kind", "loss"), tuple(KINDS))
    licence = _one_of("license", arguments.values.get("license", "apache-2.0").lower(), tuple(LICENCES))
    scaffold = Scaffold(name, kind, licence)
    check(scaffold, load(strict=False))
    parent = Path(arguments.values.get("into", "."))
    if not parent.is_dir():
        raise RequestError(Problem("no such folder", key=str(parent), fix="`--into` takes a folder that is there"))
    folder = write(scaffold, parent)
    names = sorted(files(scaffold))
    if arguments.has("json"):
        terminal.show(jsonform.text({"ok": True, "folder": str(folder), "files": names}))
    else:
        terminal.show(*_told(scaffold.choice, folder, names, name))
    return 0


def _one_of(flag: str, value: str, menu: tuple[str, ...]) -> str:
    if value not in menu:
        text = f"`{value}` is not one of {listed(menu, 'and')}"
        raise RequestError(Problem(text, key=f"--{flag}", nearest=nearest(value, menu)))
    return value


def _told(choice: str, folder: Path, names: list[str], name: str) -> list[str]:
    return [
        f"wrote {folder}: {count(len(names), 'file')}",
        *(f"  {name}" for name in names),
        "",
        "next",
        f"  pip install -e {folder}",
        f"  python -m memcfg resolve {choice}",
        f"  python -m pytest {folder}",
        f"  python -m memcfg plugins test {name}",
    ]
