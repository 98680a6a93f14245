"""What a misspelt name was probably meant to be.

Names are dotted keys (`packing.strategy`), config groups and commands. People get them wrong in few ways: a letter, a
hyphen, the wrong section, the section left out, or the name that another program uses for the same thing
(`gradient_accumulation_steps` for `run.accumulation`), which shares a word with the right one.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

CUTOFF = 0.66
"""Scores below this are no suggestion at all: a wrong one misleads more than none."""

SPREAD = 0.12
"""Only names nearly as good as the best are offered beside it."""


def nearest(word: str, names: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The names most like `word`, best first; none where nothing is close."""
    scored = sorted(((score(word, name), name) for name in names), key=lambda pair: (-pair[0], pair[1]))
    if not scored or scored[0][0] < CUTOFF:
        return ()
    floor = max(CUTOFF, scored[0][0] - SPREAD)
    return tuple(name for value, name in scored[:limit] if value >= floor)


def same_leaf(word: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that end as `word` does: the right key in the wrong section, or without one."""
    leaf = _leaf(_canonical(word))
    return tuple(sorted(name for name in names if "." in name and _leaf(name) == leaf))


def score(word: str, name: str) -> float:
    """Likeness between 0 and 1."""
    word, name = _canonical(word), _canonical(name)
    by_leaf = (0.85 if "." in word else 0.97) * _ratio(_leaf(word), _leaf(name))  # who names a section means it
    return max(_ratio(word, name), by_leaf, 0.9 * _shared_words(_leaf(word), name))


def _canonical(word: str) -> str:
    return word.lower().replace("-", "_")


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _ratio(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b).ratio()


def _shared_words(leaf: str, name: str) -> float:
    """The part of the longer wording that both have; `checkpoint` and `checkpointing` count as one word."""
    said, known = _words(leaf), _words(name)
    common = sum(len(k) for k in known if any(_akin(s, k) for s in said))
    return max(common / max(1, sum(map(len, known))), common / max(1, sum(map(len, said))))


def _words(name: str) -> list[str]:
    return [part for part in name.replace(".", "_").split("_") if len(part) > 2]


def _akin(a: str, b: str) -> bool:
    return a == b or (min(len(a), len(b)) >= 5 and (a.startswith(b) or b.startswith(a)))
