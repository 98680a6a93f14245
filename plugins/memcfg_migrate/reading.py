"""Files as they lie: JSON, YAML and Python source, told apart by their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from memcfg import Problem, RequestError
from memcfg.files import reason
from memcfg_migrate.said import Given, Source

LARGEST: Final = 2**22
"""Bytes of a config. A larger file is something else."""
PICKLES: Final = (".bin", ".pt", ".pth", ".pkl", ".pickle")
MAPPINGS: Final = (".json", ".yaml", ".yml")


def text_of(path: Path) -> str:
    """The text of a file. Raises `RequestError`: no such file, a folder, no text, or far too large."""
    try:
        if path.is_file() and path.stat().st_size > LARGEST:
            raise RequestError(Problem(f"larger than {LARGEST // 2**20} MiB: no config", key=str(path)))
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RequestError(Problem(reason(error), key=str(path))) from error
    except UnicodeDecodeError as error:
        raise RequestError(
            Problem("no text", key=str(path), fix=_PICKLED if path.suffix in PICKLES else None)
        ) from error


_PICKLED: Final = (
    "pickles run code and are never read: write the config as JSON (`args.to_json_string()`), or give the script"
)


def first_object(name: Path, beside: Path) -> dict[str, Any] | None:
    """The object in a JSON file that a config names, from here or `beside` the config; None where there is none."""
    for path in (name, beside / name):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return found if isinstance(found, dict) else None
    return None


def mapping(path: Path) -> Source:
    """A JSON or YAML file, with the line of each key where it is YAML."""
    text = text_of(path)
    found, lines = _json(path, text) if path.suffix == ".json" else _yaml(path, text)
    if not isinstance(found, dict):
        what = "is empty" if found is None else f"holds {_what(found)}, not arguments by name"
        raise RequestError(Problem(what, key=str(path)))
    given = {}
    for key, value in found.items():
        where = f"{path}:{lines[key]}" if key in lines else str(path)
        given[str(key)] = Given(str(key), value, where)
    return Source(str(path), given)


def _what(found: Any) -> str:
    return "a list" if isinstance(found, list) else "a single value"


def _json(path: Path, text: str) -> tuple[Any, dict[str, int]]:
    try:
        return json.loads(text), {}
    except json.JSONDecodeError as error:
        raise RequestError(Problem(f"no JSON: {error.msg.lower()}", key=f"{path}:{error.lineno}")) from error
    except RecursionError as error:
        raise RequestError(Problem("no JSON that can be read: it is nested too deeply", key=str(path))) from error


def _yaml(path: Path, text: str) -> tuple[Any, dict[Any, int]]:
    import yaml

    try:
        _refuse_twice(path, root := yaml.compose(text, Loader=yaml.SafeLoader))
        found = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise RequestError(Problem(f"no YAML: {error.problem or 'it cannot be read'}", key=f"{path}{line}")) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise RequestError(Problem(f"no YAML: {error}", key=str(path))) from error
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    return found, {key.value: key.start_mark.line + 1 for key, _ in pairs if isinstance(key, yaml.ScalarNode)}


def _refuse_twice(path: Path, root: Any) -> None:
    """A key that is there twice: YAML takes the last, which is hardly what was meant."""
    seen: dict[str, int] = {}
    for key, _ in getattr(root, "value", ()) if getattr(root, "id", "") == "mapping" else ():
        line = key.start_mark.line + 1
        if str(key.value) in seen:
            text = f"said twice, in lines {seen[str(key.value)]} and {line}"
            raise RequestError(Problem(text, key=f"{key.value} ({path})"))
        seen[str(key.value)] = line
