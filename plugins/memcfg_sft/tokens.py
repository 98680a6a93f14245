"""From text, prompts and completions, conversations, or token ids to `input_ids` and `labels`.

Text is tokenised as one string. Where the prompt ends is the longest common beginning of the prompt's own tokens and
those of prompt and completion together, so a token that spans the seam is learned with the completion. One end-of-text
token follows every document and is learned, by its position: a padding token with the same id changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import datasets

from memcfg import DataError, Problem, conversations, rows
from memcfg.batch import IGNORE
from memcfg.conversations import Beside, seam, text_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger("memcfg.sft")

VERSION = 3
"""Part of the cache's fingerprint: raise it whenever the tokens change."""
FEATURES = datasets.Features({
    "input_ids": datasets.List(datasets.Value("int32")),
    "labels": datasets.List(datasets.Value("int32")),
})  # fmt: skip
MASKS = ("completion_mask", "assistant_masks")

Rows = dict[str, list[Any]]


@dataclass(frozen=True)
class Learned:
    """What is learned: the completion only (None: where there is one), the assistant's turns only."""

    completion_only: bool | None = None
    assistant_only: bool = False


def tokenise(
    dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, learned: Learned, workers: int | None = None
) -> datasets.Dataset:
    """Rows of `input_ids` (int32) and `labels` (int32). Rows without any text are left out. Raises `DataError`."""
    structs = [name for name, feature in dataset.features.items() if nested(feature)]
    return rows.mapped(
        dataset, maker(dataset.column_names, tokenizer, learned, structs), features=FEATURES, desc="tokenising",
        depends_on=["memcfg.sft", VERSION, conversations.state(tokenizer), learned], workers=workers,
    )  # fmt: skip


def maker(
    names: Iterable[str], tokenizer: PreTrainedTokenizerBase, learned: Learned, structs: Iterable[str] = ()
) -> Callable[[Rows], Rows]:
    """What makes tokens of a batch of rows with these columns. `structs`: columns in which Arrow invents nulls."""
    columns = set(names)
    if "input_ids" in columns:
        return lambda batch: _from_ids(batch, learned)
    if "messages" in columns:
        _refuse(learned.completion_only, "sft.completion_only", "conversations", "sft.assistant_only=true")
        return lambda batch: _from_conversations(_whole(batch, structs), tokenizer, learned)
    if {"prompt", "completion"} <= columns:
        return lambda batch: _from_pairs(_whole(batch, structs), tokenizer, learned)
    if "text" not in columns:
        there = ", ".join(f"`{name}`" for name in names) or "none"
        what = "`text`, nor `messages`, nor `prompt` and `completion`, nor `input_ids`"
        raise DataError(Problem(f"the rows have neither {what}; columns: {there}"))
    _refuse(learned.completion_only, "sft.completion_only", "plain text", "give `prompt` and `completion`")
    _refuse(learned.assistant_only, "sft.assistant_only", "plain text", "give `messages`")
    return lambda batch: _from_text(batch, tokenizer)


def _refuse(asked: bool | None, option: str, what: str, instead: str) -> None:
    if asked:
        text = f"true, but the rows hold {what}: there is nothing of the kind to learn"
        raise DataError(Problem(text, option, fix=f"{instead}, or drop `{option}`"))


def _from_text(batch: Rows, tokenizer: PreTrainedTokenizerBase) -> Rows:
    texts = [text for text in batch["text"] if text and text.strip()]
    ids = [_ended(found, tokenizer) for found in text_ids(tokenizer, texts)]
    return {"input_ids": ids, "labels": ids}


def _from_conversations(batch: Rows, tokenizer: PreTrainedTokenizerBase, learned: Learned) -> Rows:
    kept = [row for row in _by_row(batch) if row["messages"]]
    turns, beside = [row["messages"] for row in kept], [Beside.of(row) for row in kept]
    found = conversations.encode(tokenizer, turns, beside, learned=learned.assistant_only)
    return {"input_ids": [e.ids for e in found], "labels": [_where(e.ids, e.learned) for e in found]}


def _from_pairs(batch: Rows, tokenizer: PreTrainedTokenizerBase, learned: Learned) -> Rows:
    kept = [row for row in _by_row(batch) if _filled(row["completion"])]
    if any(isinstance(row["completion"], list) for row in kept):
        return _from_turns(kept, tokenizer, learned)
    _refuse(learned.assistant_only, "sft.assistant_only", "prompts and completions of text", "give them as messages")
    whole = text_ids(tokenizer, [(row["prompt"] or "") + row["completion"] for row in kept])
    ids = [_ended(found, tokenizer) for found in whole]
    if learned.completion_only is False:
        return {"input_ids": ids, "labels": ids}
    prompts = text_ids(tokenizer, [row["prompt"] or "" for row in kept])
    return {"input_ids": ids, "labels": [_after(p, w, i) for p, w, i in zip(prompts, whole, ids, strict=True)]}


def _from_turns(kept: list[dict[str, Any]], tokenizer: PreTrainedTokenizerBase, learned: Learned) -> Rows:
    """Prompts and completions that are conversations."""
    prompts = [_turns(row["prompt"], "user") for row in kept]
    beside = [Beside.of(row) for row in kept]
    wholes = [p + _turns(row["completion"], "assistant") for p, row in zip(prompts, kept, strict=True)]
    found = conversations.encode(tokenizer, wholes, beside, learned=learned.assistant_only)
    labels = [_where(e.ids, e.learned) for e in found]
    if learned.completion_only is not False:
        begins = conversations.prompts(tokenizer, prompts, beside)
        seams = [seam(begin, e.ids) for begin, e in zip(begins, found, strict=True)]
        labels = [[IGNORE] * s + row[s:] for s, row in zip(seams, labels, strict=True)]
    return {"input_ids": [e.ids for e in found], "labels": labels}


def _from_ids(batch: Rows, learned: Learned) -> Rows:
    """Token ids as they are: with their own labels, or with labels where every mask of the row allows them."""
    if "labels" in batch:
        return {"input_ids": batch["input_ids"], "labels": batch["labels"]}
    used = [m for m in MASKS if m in batch and not (m == "completion_mask" and learned.completion_only is False)]
    if learned.assistant_only and "assistant_masks" not in used:
        _refuse(True, "sft.assistant_only", "token ids without `assistant_masks`", "give the masks")
    labels = [list(ids) for ids in batch["input_ids"]]
    for mask in used:
        for row, allowed in zip(labels, batch[mask], strict=True):
            row[:] = [token if learn else IGNORE for token, learn in zip(row, allowed, strict=True)]
    return {"input_ids": batch["input_ids"], "labels": labels}


def _after(prompt: list[int], whole: list[int], ids: list[int]) -> list[int]:
    first = seam(prompt, whole)
    return [IGNORE] * first + ids[first:]


def _where(ids: list[int], learned: list[bool] | None) -> list[int]:
    return ids if learned is None else [i if learn else IGNORE for i, learn in zip(ids, learned, strict=True)]


def _ended(ids: list[int], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    eos = tokenizer.eos_token_id
    return ids if eos is None or (ids and ids[-1] == eos) else [*ids, eos]


def _turns(value: Any, role: str) -> list[Any]:
    """Messages; a string beside messages is one message."""
    return [{"role": role, "content": value}] if isinstance(value, str) else list(value or ())


def _filled(completion: Any) -> bool:
    return bool(completion.strip() if isinstance(completion, str) else completion)


def _by_row(batch: Rows) -> Iterable[dict[str, Any]]:
    return (dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True))


def nested(feature: Any) -> bool:
    """Whether a column holds objects whose keys Arrow has made alike, adding nulls."""
    inner = getattr(feature, "feature", feature)
    return isinstance(inner, Mapping) or (inner is not feature and nested(inner))


def _whole(batch: Rows, structs: Iterable[str]) -> Rows:
    """The batch without the nulls that Arrow invents."""
    return batch | {name: [_without_nulls(value) for value in batch[name]] for name in structs if name in batch}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(v) for name, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value
