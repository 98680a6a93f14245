"""The forms that rows have: which columns make one, and what each column may hold.

A row has one form: text, a conversation, a prompt with what follows it, a preference, or token ids. The first row of a
file decides which, and of what kind its columns are; all others must agree. Conversations and other nested values are kept
as JSON, value by value: an Arrow struct would give every object the keys of all others, filled with null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from memcfg.batch import IGNORE

FORMS = (
    ("text",),
    ("messages",),
    ("prompt", "completion"),
    ("prompt", "chosen", "rejected"),
    ("chosen", "rejected"),
    ("prompt",),
    ("input_ids",),
)
"""The columns that say what a row is; no row has columns of two forms."""

MAIN = tuple(dict.fromkeys(name for form in FORMS for name in form))

BESIDE: dict[tuple[str, ...], dict[str, str]] = {
    ("input_ids",): {"labels": "ids", "completion_mask": "mask", "assistant_masks": "mask"},
    ("prompt", "completion"): {"label": "flag"},
    ("prompt", "chosen", "rejected"): {"margin": "number"},
    ("chosen", "rejected"): {"margin": "number"},
}
"""Columns that may stand beside a form, and their kinds. Any other column is left alone."""

KINDS = {
    "string": "a string", "turns": "a list of messages", "ids": "a list of whole numbers", "flag": "true or false",
    "number": "a number", "mask": "a list of 0 and 1",
}  # fmt: skip

LARGEST = 2**31 - 1
"""The largest token id that rows can hold."""

LATER = ("tools", "chat_template_kwargs")
"""Columns, of JSON, that stand beside conversations; the first rows need not have them."""

Columns = Mapping[str, str]
"""The columns to read and the kind of each: string, turns, ids, mask, flag, number or json."""


class FormError(ValueError):
    """A row that has no form, or not the expected one. The text begins with a verb: "has no `prompt`"."""


def columns_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The columns of a row's form and what stands beside them. Raises `FormError`."""
    form = form_of(row)
    found = {name: _main_kind(name, row[name]) for name in form}
    there = {n: k for n, k in BESIDE.get(form, {}).items() if n in row}
    beside = {n: kind_beside(k, row[n] is None or _fits(k, row[n])) for n, k in there.items()}
    if form == ("prompt",):  # what a reward is computed from may have any name
        others = {name: value for name, value in row.items() if name not in (*MAIN, *LATER)}
        beside |= {name: "string" if isinstance(value, str) else "json" for name, value in others.items()}
    return found | beside | {name: "json" for name in LATER if name in row and "turns" in found.values()}


def kind_beside(kind: str, fits: bool) -> str:
    """The kind of a column beside the form. A mark or a number of another type is handed on as it is: whoever learns from
    it says what is wrong with it. Labels and masks of another type are a fault."""
    return "json" if not fits and kind in ("flag", "number") else kind


def form_of(names: Iterable[str]) -> tuple[str, ...]:
    """The form that these columns have. Raises `FormError` where they have none or two."""
    there = tuple(name for name in MAIN if name in set(names))
    if not there:
        forms = "`text`, nor `messages`, nor `prompt` and `completion`"
        raise FormError(f"has neither {forms}; its columns: {listed(names)}")
    for form in FORMS:
        if set(form) == set(there):
            return form
    larger = next((form for form in FORMS if set(there) < set(form)), None)
    if larger is not None:
        missing = next(name for name in larger if name not in there)
        raise FormError(f"has no `{missing}`; its columns: {listed(names)}")
    raise FormError(f"has {listed(there)} together: a row has one form")


def difference(first: Columns, other: Columns) -> str | None:
    """How the form of a row differs from the first one's; None where it does not."""
    mine, theirs = ([name for name in columns if name in MAIN] for columns in (first, other))
    return None if set(mine) == set(theirs) else f"has {listed(theirs)}, and the first row has {listed(mine)}"


def fault(columns: Columns, name: str, value: Any) -> str | None:
    """What is wrong with a value that is not null: "is a number, not a string"; None where nothing is."""
    kind = columns[name]
    if kind == "json" or _fits(kind, value):
        return turn_fault(value) if kind == "turns" else None
    return f"is {described(value)}, not {KINDS[kind]}"


def ids_fault(row: Mapping[str, Any]) -> str | None:
    """What is wrong with a row of token ids, whose columns are of their kinds; None where nothing is."""
    ids = row["input_ids"]
    for name, values in row.items():
        if values is None:
            return f"has no `{name}`, which other rows have"
        if len(values) != len(ids):
            return f"has {len(values)} values in `{name}` and {len(ids)} in `input_ids`"
    if not all(_is_id(i) for i in ids):
        return f"holds {next(i for i in ids if not _is_id(i))} in `input_ids`, which is no token id"
    wrong = [i for i in row.get("labels", ()) if not _is_id(i) and i != IGNORE]
    return f"holds {wrong[0]} in `labels`, which is neither a token id nor {IGNORE}" if wrong else None


def _is_id(value: Any) -> bool:
    return value is not None and 0 <= value <= LARGEST


def turn_fault(turns: Sequence[Any]) -> str | None:
    """What is wrong with a conversation; None where nothing is."""
    for number, turn in enumerate(turns):
        if not isinstance(turn, dict):
            return f"message {number} is {described(turn)}, not an object"
        if not isinstance(turn.get("role"), str):
            return f"message {number} has no `role`; its keys: {listed(turn)}"
    return None


def filled(value: Any) -> bool:
    """Whether there is anything in a value."""
    return bool(value.strip()) if isinstance(value, str) else value not in (None, [], {})


def nothing_held(rows: int, main: Sequence[str], held: Collection[str]) -> str:
    """What is said of a file no row of which holds something in each of the columns `main`; some row does in `held`."""
    who = "the only row is" if rows == 1 else f"all {rows} rows are"
    bare = [name for name in main if name not in held]
    if not bare:
        return f"{who} empty: no row holds {listed(main)} together"
    if len(bare) < len(main):
        return f"{who} empty: every {' and every '.join(f'`{name}`' for name in bare)} is empty"
    return f"{who} empty: no row has any {' or '.join(f'`{name}`' for name in main)}"


def described(value: Any) -> str:
    """The kind of a JSON value in words."""
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), f"a {type(value).__name__}")


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _main_kind(name: str, value: Any) -> str:
    if name == "input_ids":
        return "ids"
    if name == "messages" or (name != "text" and isinstance(value, list)):
        return "turns"
    return "string"


def _fits(kind: str, value: Any) -> bool:
    if kind == "ids":
        return isinstance(value, list) and all(type(v) is int for v in value)
    if kind == "mask":
        return isinstance(value, list) and all(type(v) in (int, bool) and v in (0, 1) for v in value)
    if kind == "number":
        return type(value) in (int, float)
    return isinstance(value, {"string": str, "turns": list, "flag": bool}[kind])
