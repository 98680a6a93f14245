"""Holding out evaluation rows by their content: the same rows whatever their order, and never two halves of one thing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np


def held_out(names: Sequence[str], rows: int) -> np.ndarray:
    """Which rows to hold out: a bool array as long as `names`, true for at most `rows` of them.

    Rows of one name stay together. Names are taken in the order of their hash, so that adding rows elsewhere moves
    only what it must."""
    members: dict[bytes, list[int]] = {}
    for index, name in enumerate(names):
        key = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        members.setdefault(key, []).append(index)
    chosen = np.zeros(len(names), dtype=bool)
    left = rows
    for key in sorted(members):
        if len(members[key]) <= left:
            chosen[members[key]] = True
            left -= len(members[key])
        if not left:
            break
    return chosen
