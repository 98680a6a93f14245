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

SPREAD = 0.06
"""Only names nearly as good as the best are offered beside it."""

WORDS = 0.94
"""What it is worth to share whole words."""

ELSEWHERE = 0.7
"""What likeness is worth in another section than the one that was named, if that exists."""


def nearest(word: str, names: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The names most like `word`, best first; none where nothing is close."""
    known = tuple(names)
    stated = _section(_canonical(word))
    meant = bool(stated) and any(_section(_canonical(name)) == stated for name in known)
    scored = sorted(((score(word, name, meant), name) for name in known), key=lambda pair: (-pair[0], pair[1]))
    if not scored or scored[0][0] < CUTOFF:
        return ()
    floor = max(CUTOFF, scored[0][0] - SPREAD)
    return tuple(name for value, name in scored[:limit] if value >= floor)


def same_leaf(word: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that end as `word` does: the right key in the wrong section, or without one."""
    leaf = _leaf(_canonical(word))
    return tuple(sorted(name for name in names if "." in name and _leaf(name) == leaf))


def score(word: str, name: str, meant: bool = False) -> float:
    """Likeness between 0 and 1. `meant`: the section that `word` names exists, so that it is most likely the right one:
    in it the last part decides, and elsewhere only the same last part comes near."""
    word, name = _canonical(word), _canonical(name)
    leaf, known = _leaf(word), _leaf(name)
    if _section(word) == _section(name):
        return max(_ratio(leaf, known), WORDS * _shared_words(leaf, known))
    if leaf == known:
        return max(_ratio(word, name), 0.85) if _section(word) else 0.97
    by_leaf = (0.85 if "." in word else 0.97) * _ratio(leaf, known)
    by_words = WORDS * max(_shared_words(leaf, name), _shared_words(leaf, known))
    found = max(_ratio(word, name), by_leaf, by_words)
    return ELSEWHERE * found if meant else found


def _canonical(word: str) -> str:
    return word.lower().replace("-", "_")


def _section(name: str) -> str:
    return name.rpartition(".")[0]


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _ratio(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b).ratio()


def _shared_words(leaf: str, name: str) -> float:
    """How much of two wordings is the same words: three parts for the one that has more of it in common, one for the other.
    `checkpoint` and `checkpointing` count as one word."""
    said, known = _words(leaf), _words(name)
    shares = sorted((_share(said, known), _share(known, said)))
    return (3 * shares[1] + shares[0]) / 4


def _share(words: list[str], others: list[str]) -> float:
    """The part of `words` that others have too, by letters; short words prove nothing."""
    common = sum(len(w) for w in words if len(w) > 2 and any(_akin(w, other) for other in others))
    return common / max(1, sum(map(len, words)))


def _words(name: str) -> list[str]:
    return [part for part in name.replace(".", "_").split("_") if part]


def _akin(a: str, b: str) -> bool:
    return a == b or (min(len(a), len(b)) >= 5 and (a.startswith(b) or b.startswith(a)))
