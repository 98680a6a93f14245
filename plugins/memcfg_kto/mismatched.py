"""Prompts with the completions of other rows, from which KTO estimates how far the policy is from its reference.

They are made of the rows that the loader really puts together, not of neighbours in the file. The completions of a
micro-batch move on by the same number of rows, so each is used once, and no row gets its own; of all numbers of rows that
one is taken under which the fewest rows get a completion of the same prompt, or one with the same text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memcfg.batch import IGNORE

Ids = list[int]


def divided(row: dict[str, Any]) -> tuple[Ids, Ids]:
    """A row's prompt and completion. Labels are -100 on the prompt."""
    ids, labels = [int(i) for i in row["input_ids"]], [int(label) for label in row["labels"]]
    begin = next((place for place, label in enumerate(labels) if label != IGNORE), len(ids))
    return ids[:begin], ids[begin:]


def mismatched(rows: Sequence[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    """For each row its prompt with another's completion, at most `limit` tokens of them; none for a single row."""
    parts = [divided(row) for row in rows]
    if len(parts) < 2:
        return []
    move = min(range(1, len(parts)), key=lambda by: (_same(parts, by), by))
    return [_row(prompt, parts[place - move][1], limit) for place, (prompt, _) in enumerate(parts)]


def _same(parts: Sequence[tuple[Ids, Ids]], by: int) -> int:
    others = (parts[place - by] for place in range(len(parts)))
    return sum(prompt == other[0] or text == other[1] for (prompt, text), other in zip(parts, others, strict=True))


def _row(prompt: Ids, completion: Ids, limit: int | None) -> dict[str, Any]:
    ids, labels = prompt + completion, [IGNORE] * len(prompt) + completion
    return {"input_ids": ids[:limit], "labels": labels[:limit], "seq_lengths": [len(ids[:limit])]}
