"""Prompts with completions as token ids, for trainers that compare completions: pairs of them, or single ones with a mark.

    prepared = prepare(dataset, tokenizer, PAIRS, Bounds(1024, "keep_start"))
    rows = account(prepared, ledger, split="train")

A prepared row holds one document (prompt and completion) for each of the row's completions, end to end, and their lengths
in `seq_lengths`. Labels are -100 on the prompt. Every document is cut by itself, so that a long one costs the other nothing,
and a row of which a document has no target left is dropped and counted: it would compare something with nothing.

Of a conversation alone (`messages`) the last turn is the completion. A prompt may be told apart (`prompt`) or be what both completions begin with. Text is tokenised in one piece with its
prompt; the completion begins where the tokens of both differ from those of the prompt alone. Conversations go through the
chat template. One end-of-text token follows every completion and is learned, by its place.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np

from memcfg import conversations, rows
from memcfg.batch import IGNORE
from memcfg.conversations import Beside, seam, text_ids, use_template
from memcfg.errors import DataError, Problem

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg.engine.ledger import Ledger
    from memcfg.plan import Plan

VERSION = 2
"""Part of the cache's fingerprint: raise it whenever the tokens change."""

EMPTY = "an empty completion"
EQUAL = "both completions are the same"
TOO_LONG = "longer than `truncation.max_length`"

FEATURES: dict[str, Any] = {
    "input_ids": datasets.List(datasets.Value("int32")),
    "labels": datasets.List(datasets.Value("int32")),
    "seq_lengths": datasets.List(datasets.Value("int32")),
    "uncut": datasets.Value("int64"),
    "reason": datasets.Value("string"),
}
"""Columns while rows are prepared. `uncut`: tokens before cutting; `reason`: why a row is dropped, null where it stays."""

Row = Mapping[str, Any]
Ids = list[int]


@dataclass(frozen=True)
class Form:
    """What a row holds: the names of its completions, and the type of what stands beside them."""

    completions: tuple[str, ...]
    beside: tuple[tuple[str, str], ...] = ()
    apart: bool = False
    """Whether each completion becomes a row of its own, whose `label` is true for the first of them."""


PAIR = ("chosen", "rejected")


@dataclass(frozen=True)
class Bounds:
    """The longest document, in tokens (None: no limit), and what becomes of a longer one: `keep_start` and `keep_end` cut
    it, `drop` drops its row. `last_only`: the last token alone is a target, as where a whole document is judged."""

    limit: int | None
    mode: str
    last_only: bool = False


def prepare(
    dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, form: Form, bounds: Bounds,
    *, workers: int | None = None,
) -> datasets.Dataset:  # fmt: skip
    """Rows of `FEATURES` and of what stands beside the completions; rows to drop are still there, without tokens."""
    kinds = {name: datasets.Value(kind) for name, kind in form.beside if name in dataset.column_names}

    def made(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        count = len(next(iter(batch.values())))
        found = [{name: values[i] for name, values in batch.items()} for i in range(count)]
        documents = _documents(found, tokenizer, form.completions)
        beside = {name: batch[name] for name in kinds}
        if form.apart:
            times = len(form.completions)
            documents = [one for sides in documents for one in _apart(sides, times)]
            beside = {name: [*_repeated(values, times)] for name, values in beside.items()}
            beside["label"] = [place == 0 for _ in found for place in range(times)]
        done = [_row(sides, bounds) for sides in documents]
        return {name: [row[name] for row in done] for name in FEATURES} | beside

    marks = {"label": datasets.Value("bool")} if form.apart else {}
    return rows.mapped(
        dataset, made, features=datasets.Features({**FEATURES, **kinds, **marks}), desc="tokenising",
        depends_on=["memcfg.completions", VERSION, conversations.state(tokenizer), form, bounds], workers=workers,
    )  # fmt: skip


def prepared_rows(
    plan: Plan, dataset: Any, tokenizer: Any, ledger: Any, split: str, *, columns: Any, form: Any, trainer: str
) -> Any:
    """Rows of a trainer of completions, as the plan's template, length and truncation make them; what is lost is in the
    ledger. Raises `DataError` for columns that are not `columns`."""
    require_columns(dataset, columns, trainer)
    use_template(tokenizer, plan.get("data.chat_template"))
    limit = plan.get("truncation.max_length")
    bounds = Bounds(limit, plan.get("truncation.mode", "keep_start"))
    prepared = prepare(dataset, tokenizer, form, bounds, workers=plan.get("data.num_proc"))
    fix = f"raise `truncation.max_length` (now {limit}), or try `truncation.mode=keep_end`" if limit else None
    return account(prepared, ledger, split=split, fix=fix)


def account(prepared: datasets.Dataset, ledger: Ledger, *, split: str, fix: str | None = None) -> datasets.Dataset:
    """The rows that stay; all that was read, cut and dropped is counted. Raises `DataError` where none stays."""
    reasons, uncut = prepared["reason"][:], np.asarray(prepared["uncut"][:], np.int64)
    keep = np.array([reason is None for reason in reasons], bool)
    kept = prepared if keep.all() else prepared.select(np.flatnonzero(keep))
    tokens = int(rows.lengths(kept).sum()) if len(kept) else 0
    ledger.add(
        rows_in=len(prepared),
        tokens_in=int(uncut.sum()),
        tokens_kept=tokens,
        tokens_truncated=int(uncut[keep].sum()) - tokens,
        tokens_supervised=int(rows.targets(kept).sum()) if len(kept) else 0,
    )
    for reason, count in Counter(r for r in reasons if r is not None).items():
        ledger.drop(reason, rows=count, tokens=int(uncut[[r == reason for r in reasons]].sum()))
    if not len(kept):
        said = ledger.told() or "there is none"
        cut = any(reason in (TOO_LONG, rows.NO_TARGET) for reason in ledger.reasons)
        raise DataError(Problem(f"no {split} row is left of {len(prepared)} ({said})", fix=fix if cut else None))
    return kept.remove_columns(["uncut", "reason"])


def require_columns(dataset: datasets.Dataset, forms: Sequence[Sequence[str]], trainer: str) -> None:
    """Raises `DataError` where the rows have none of these sets of columns."""
    if any(set(form) <= set(dataset.column_names) for form in forms):
        return
    there = ", ".join(f"`{name}`" for name in dataset.column_names) or "none"
    wanted = ", or ".join(" and ".join(f"`{name}`" for name in form) for form in forms)
    raise DataError(Problem(f"`trainer={trainer}` needs rows with {wanted}; their columns: {there}"))


def require_kind(dataset: datasets.Dataset, column: str, kind: str, wanted: str) -> None:
    """Raises `DataError` where what stands in a column beside the completions is not of this type."""
    if getattr(dataset.features[column], "dtype", None) == kind:
        return
    number, value = next(((n, v) for n, v in enumerate(dataset[column][:], 1) if v is not None), (0, None))
    if number:  # a column of nulls has no type, and nothing wrong in it
        raise DataError(Problem(f"row {number} holds {json.dumps(value, default=str)}: {wanted}", key=column))


# ----------------------------------------------------------------------------------------------------- one row


@dataclass(frozen=True)
class Side:
    """The tokens of a prompt with one completion, which begins at `begin`."""

    ids: Ids
    begin: int


def _apart(sides: Sequence[Side] | str, times: int) -> list[list[Side] | str]:
    return [sides] * times if isinstance(sides, str) else [[side] for side in sides]


def _row(sides: Sequence[Side] | str, bounds: Bounds) -> dict[str, Any]:
    """One prepared row, or the reason why there is none."""
    if isinstance(sides, str):
        return _dropped(sides, 0)
    uncut = sum(len(side.ids) for side in sides)
    if bounds.limit is not None and bounds.mode == "drop" and any(len(s.ids) > bounds.limit for s in sides):
        return _dropped(TOO_LONG, uncut)
    ids, labels = zip(*(_cut(side, bounds) for side in sides), strict=True)
    if any(all(label == IGNORE for label in document[1:]) for document in labels):
        return _dropped(rows.NO_TARGET, uncut)
    return {
        "input_ids": [*chain(*ids)], "labels": [*chain(*labels)], "seq_lengths": [len(i) for i in ids],
        "uncut": uncut, "reason": None,
    }  # fmt: skip


def _dropped(reason: str, uncut: int) -> dict[str, Any]:
    return {"input_ids": [], "labels": [], "seq_lengths": [], "uncut": uncut, "reason": reason}


def _cut(side: Side, bounds: Bounds) -> tuple[Ids, Ids]:
    """The ids and labels of a document, cut by itself."""
    labels = [IGNORE] * side.begin + side.ids[side.begin :]
    if bounds.last_only:
        labels = [IGNORE] * (len(side.ids) - 1) + side.ids[-1:]
    kept = slice(None) if bounds.limit is None else _kept(len(side.ids), bounds)
    return side.ids[kept], labels[kept]


def _kept(length: int, bounds: Bounds) -> slice:
    limit = bounds.limit or length
    return slice(max(0, length - limit), None) if bounds.mode == "keep_end" else slice(limit)


# --------------------------------------------------------------------------------------------- text and conversations


def _documents(
    found: Sequence[Row], tokenizer: PreTrainedTokenizerBase, names: Sequence[str]
) -> list[list[Side] | str]:
    """The documents of each row, or the reason why it has none. All texts are tokenised together."""
    told = [_told(row, names) for row in found]
    jobs = [(prompt, each, Beside.of(row)) for (prompt, sides), row in zip(told, found, strict=True) for each in sides]
    usable = [_reason(sides) for _, sides in told]
    wanted = [job for job, good in zip(jobs, _repeated(usable, len(names)), strict=True) if good is None]
    texts = iter(_of_text(tokenizer, [job for job in wanted if isinstance(job[1], str)]))
    turns = iter(_of_turns(tokenizer, [job for job in wanted if not isinstance(job[1], str)]))
    return [
        reason or [next(texts if isinstance(side, str) else turns) for side in sides]
        for reason, (_, sides) in zip(usable, told, strict=True)
    ]


def _repeated(values: Iterable[Any], times: int) -> Iterable[Any]:
    return (value for value in values for _ in range(times))


def _told(row: Row, names: Sequence[str]) -> tuple[Any, list[Any]]:
    """The prompt and the completions of a row, in one form: text, or messages where either is."""
    if "messages" in row:  # the assistant's last turn follows all others
        turns = list(row["messages"] or ())
        return turns[:-1], [turns[-1:]]
    prompt, sides = row.get("prompt"), [row[name] for name in names]
    if prompt is None and len(sides) > 1 and all(sides):
        prompt, sides = divided(*sides)
    if any(isinstance(value, list) for value in (prompt, *sides)):
        return _turns(prompt, "user"), [_turns(side, "assistant") for side in sides]
    return prompt or "", [side or "" for side in sides]


def _reason(sides: Sequence[Any]) -> str | None:
    if not all(_filled(side) for side in sides):
        return EMPTY
    return EQUAL if len(sides) > 1 and all(side == sides[0] for side in sides) else None


def _filled(completion: Any) -> bool:
    if isinstance(completion, str):
        return bool(completion.strip())
    return any(turn.get("content") or turn.get("tool_calls") for turn in completion)


def divided(one: Any, other: Any) -> tuple[Any, list[Any]]:
    """What two texts or conversations have in common at their beginning, and what is left of each.

    Text is divided between words; the space before a word goes with it, as most tokenizers have it. Texts of which one
    begins with all of the other are divided before their last common word: a completion is never empty."""
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    if isinstance(one, str) and one != other:
        common = _between_words(one, other, common)
    return one[:common], [one[common:], other[common:]]


def _between_words(one: str, other: str, common: int) -> int:
    rest = one[common : common + 1], other[common : common + 1]
    inside = common and one[common - 1].isalnum() and any(character.isalnum() for character in rest)
    if inside or not all(rest):
        while common and not one[common - 1].isalnum():
            common -= 1
        while common and one[common - 1].isalnum():
            common -= 1
    return common - 1 if common and one[common - 1] == " " else common


Job = tuple[Any, Any, Beside]


def _of_text(tokenizer: PreTrainedTokenizerBase, jobs: Sequence[Job]) -> list[Side]:
    wholes = text_ids(tokenizer, [prompt + completion for prompt, completion, _ in jobs])
    prompts = text_ids(tokenizer, [prompt for prompt, _, _ in jobs])
    begins = [seam(prompt, whole) for prompt, whole in zip(prompts, wholes, strict=True)]
    return [Side(_ended(tokenizer, whole), begin) for whole, begin in zip(wholes, begins, strict=True)]


def _of_turns(tokenizer: PreTrainedTokenizerBase, jobs: Sequence[Job]) -> list[Side]:
    if not jobs:
        return []
    said = [beside for _, _, beside in jobs]
    wholes = conversations.encode(tokenizer, [prompt + completion for prompt, completion, _ in jobs], said)
    begins = conversations.prompts(tokenizer, [prompt for prompt, _, _ in jobs], said)
    return [Side(whole.ids, seam(begin, whole.ids)) for whole, begin in zip(wholes, begins, strict=True)]


def _ended(tokenizer: PreTrainedTokenizerBase, ids: Ids) -> Ids:
    eos: Any = tokenizer.eos_token_id
    return ids if eos is None or (ids and ids[-1] == eos) else [*ids, eos]


def _turns(value: Any, role: str) -> list[Any]:
    """Messages; a string beside messages is one message."""
    return [{"role": role, "content": value}] if isinstance(value, str) else list(value or ())
