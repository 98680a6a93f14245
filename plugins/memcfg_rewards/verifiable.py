"""Rewards that can be checked without a model or a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

KINDS: Final = {
    "vowels": frozenset("aeiouAEIOU"),
    "digits": frozenset("0123456789"),
    "capitals": frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "marks": frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
}
"""Kinds of characters that the embedded prompts ask for."""

ENOUGH: Final = 12
"""Characters of a completion that is long enough: fewer are worth less, so that a single right one is no way out."""


def kinds(completions: Sequence[str], wanted: Sequence[str]) -> list[float]:
    """The share of a completion's characters (spaces aside) that are of the kind `wanted` names, from 0 to 1. A short one is
    counted as if it had 12 characters."""
    return [_share(text, KINDS[kind]) for text, kind in zip(completions, wanted, strict=True)]


def finished(finished: Sequence[bool]) -> list[float]:
    """1 for a completion that ended by itself, 0 for one that hit the limit."""
    return [float(ended) for ended in finished]


def _share(text: str, kind: frozenset[str]) -> float:
    written = [character for character in text if not character.isspace()]
    return sum(character in kind for character in written) / max(len(written), ENOUGH)
