"""Prompts for trainers that learn from their own completions, made by a rule and judged by counting.

A prompt asks for characters of one kind, for one of the standard library's modules: `Write digits for json.decoder.` What the
completion says about the module does not matter, only which characters it is made of (`wanted`, the reward `kinds`). A small
model that starts from noise climbs that within a minute, first by writing more of all kinds that are asked for, then by looking
at which one is. It shows that a trainer works, and nothing about what such a model can learn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

VERSION = 1
"""Part of the cache's name: raise it whenever the prompts change."""

KINDS: Final = ("vowels", "digits", "capitals", "marks")


@dataclass(frozen=True)
class Task:
    """`name` is the module: its prompts stay on one side of the evaluation split."""

    name: str
    prompt: str
    wanted: str


def tasks(names: Iterable[str]) -> list[Task]:
    """A prompt of each kind for each module, in the order in which the modules first come."""
    modules = dict.fromkeys(_module(name) for name in names)
    return [Task(module, f"Write {kind} for {module}.\n\n", kind) for module in modules for kind in KINDS]


def _module(name: str) -> str:
    """The first part of a dotted name; what is no name of a module is one word all the same."""
    return name.split()[0].partition(".")[0]
