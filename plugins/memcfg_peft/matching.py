"""Which layers of a model an entry of `peft.targets` or `peft.modules_to_save` names.

An entry is a name as peft reads it: a module's whole path, or the end of one at a dot (`q_proj`, `self_attn.q_proj`)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from memcfg import Problem


def matches(names: Iterable[str], entry: str) -> list[str]:
    """The names that `entry` stands for."""
    return [name for name in names if name == entry or name.endswith(f".{entry}")]


def counted(names: Sequence[str], entries: Iterable[str]) -> dict[str, int]:
    """How many names each entry stands for."""
    return {entry: len(matches(names, entry)) for entry in entries}


def unmatched(names: Sequence[str], entries: Iterable[str], *, key: str) -> list[Problem]:
    """One problem for each entry that stands for nothing, with the nearest names: peft itself only complains when no
    entry at all matches, and trains the rest."""
    return [_nothing(names, entry, key) for entry, count in counted(names, entries).items() if not count]


def _nothing(names: Sequence[str], entry: str, key: str) -> Problem:
    endings = list(dict.fromkeys(ending for name in names for ending in _endings(name)))
    near = difflib.get_close_matches(entry, endings, n=2)
    leaves = list(dict.fromkeys(name.rpartition(".")[2] for name in names))
    fix = None if near else f"its layers are {', '.join(f'`{leaf}`' for leaf in leaves[:12])}"
    return Problem(f"`{entry}` matches no layer of the model", key=key, nearest=tuple(near), fix=fix)


def _endings(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[i:]) for i in range(len(parts)) if not parts[i].isdigit()]
