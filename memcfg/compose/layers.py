"""Where values come from: one layer for each file that Hydra composed, the command line on top.

    group file chosen by a preset  <  preset (recipe, experiment)  <  group chosen on the command line  <  its keys

Hydra itself lets a key of a preset win over a group chosen on the command line, because of their places in the defaults
list. Here what is typed always wins over what is stored, so that a repair can be appended to any command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from memcfg.compose.values import MISSING
from memcfg.errors import Note
from memcfg.solver.expr import same, show

COMMAND_LINE: Final = "command line"
STORED, PRESET, CHOSEN, TYPED = range(4)


@dataclass(frozen=True)
class Layer:
    """What one file, or the command line, sets. `values` are as written: interpolations are not resolved."""

    origin: str
    rank: int
    values: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None
    path: str = ""
    """`group/name` of a config file."""
    asks: Sequence[str] = ()
    """Keys that the file leaves to whoever chooses it (`???`)."""

    def setting(self, key: str) -> str:
        """Where this layer sets `key`: its origin, with the line where it is a file that can be read."""
        line = _line(self.file, key) if self.file is not None else None
        return self.origin if line is None else self.origin.replace(".yaml", f".yaml:{line}", 1)


def highest(layers: Sequence[Layer], key: str) -> Layer | None:
    """The layer whose value of `key` counts."""
    return next((layer for layer in reversed(layers) if key in layer.values), None)


def overruled(layers: Sequence[Layer]) -> Iterator[Note]:
    """A note for every key that a higher layer sets to something else than the layer below it."""
    for key in dict.fromkeys(key for layer in layers for key in layer.values):
        setting = [layer for layer in layers if key in layer.values]
        for below, above in pairwise(setting):
            if above is setting[-1] and not same(below.values[key], above.values[key]):
                yield Note("note", "compose.layer", _overruled(key, below, above))


def _overruled(key: str, below: Layer, above: Layer) -> str:
    value = above.values[key]
    kept = "left unset" if value == MISSING else f"`{show(value)}`"
    return f"`{key}` is {kept} ({above.origin}), not `{show(below.values[key])}` ({below.origin})"


def _line(file: Path, key: str) -> int | None:
    """The line of `file` that sets `key`; its path may begin inside the file's own package."""
    import yaml

    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    parts = key.split(".")
    found = (_descend(root, parts[start:]) for start in range(len(parts)))
    return next((line for line in found if line is not None), None)


def _descend(node: Any, parts: list[str]) -> int | None:
    line = None
    for part in parts:
        pairs = node.value if getattr(node, "id", None) == "mapping" else []
        match = next(((name, value) for name, value in pairs if name.value == part), None)
        if match is None:
            return None
        line, node = match[0].start_mark.line + 1, match[1]
    return line
