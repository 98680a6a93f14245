"""Preference pairs from the standard library, made by a rule and judged by nobody.

The prompt asks for the documentation of a function. The better answer is that documentation, the worse one is the
function's own source after its head. Both are real text about the same thing, and neither is more than twice as long as the
other; in half of the pairs the better answer is the longer one. What tells them apart is their form: words or code. A small
model that starts from noise learns that within a minute, which is what these pairs are for: they show that a trainer works,
and say nothing about what people prefer. (Which of two documentations belongs to a function would be the harder question;
such a model does not learn it from the whole library.)
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from memcfg_data.stdlib import Pair

VERSION = 1
"""Part of the cache's name: raise it whenever the pairs change."""
ASKED, SOURCE = "Document the function ", "Complete this function "
LONGEST = 600
"""Characters of an answer: longer ones cost a small model much time and tell it little."""
RATIO = 2
"""How many times longer than the other an answer may be."""


@dataclass(frozen=True)
class Preference:
    """`name` is the package: all its pairs stay on one side of the evaluation split."""

    name: str
    prompt: str
    chosen: str
    rejected: str


def preferences(pairs: Iterable[Pair]) -> list[Preference]:
    """The pairs of every function whose documentation and source are of like length, in the order of the pairs given."""
    asked: dict[str, Pair] = {}
    sources: dict[str, str] = {}
    for pair in pairs:
        if pair.prompt.startswith(ASKED):
            asked.setdefault(pair.name, pair)
        elif pair.prompt.startswith(SOURCE):
            sources.setdefault(pair.name, textwrap.dedent(pair.completion).strip("\n"))
    return [
        Preference(name.partition(".")[0], pair.prompt, pair.completion, sources[name])
        for name, pair in asked.items()
        if name in sources and _alike(len(pair.completion), len(sources[name]))
    ]


def _alike(one: int, other: int) -> bool:
    shorter, longer = sorted((one, other))
    return shorter > 0 and longer <= LONGEST and longer <= RATIO * shorter
