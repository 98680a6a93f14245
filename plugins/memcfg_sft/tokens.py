"""From text, prompts and completions, or token ids to `input_ids` and `labels`.

Text is tokenised as one string. Where the prompt ends is the longest common beginning of the prompt's own tokens and
those of prompt and completion together, so a token that spans the seam is learned with the completion. One end-of-text
token follows every document and is learned, by its position: a padding token with the same id changes nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import datasets

from memcfg import DataError, Problem, rows
from memcfg.batch import IGNORE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger("memcfg.sft")

VERSION = 1
"""Part of the cache's fingerprint: raise it whenever the tokens change."""
FEATURES = datasets.Features({
    "input_ids": datasets.List(datasets.Value("int32")),
    "labels": datasets.List(datasets.Value("int64")),
})  # fmt: skip
MASKS = ("completion_mask", "assistant_masks")

Rows = dict[str, list[Any]]


def tokenise(
    dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, completion_only: bool | None
) -> datasets.Dataset:
    """Rows of `input_ids` (int32) and `labels` (int64). Rows without any text are left out. Raises `DataError`."""
    return rows.mapped(
        dataset, _maker(dataset, tokenizer, completion_only), features=FEATURES, desc="tokenising",
        depends_on=["memcfg.sft", VERSION, _state(tokenizer), completion_only],
    )  # fmt: skip


def _maker(
    dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, completion_only: bool | None
) -> Callable[[Rows], Rows]:
    columns = set(dataset.column_names)
    if "input_ids" in columns:
        return lambda batch: _from_ids(batch, completion_only)
    if {"prompt", "completion"} <= columns:
        learn_all = completion_only is False
        return lambda batch: _from_pairs(batch, tokenizer, learn_all)
    if "text" not in columns:
        there = ", ".join(f"`{name}`" for name in dataset.column_names) or "none"
        raise DataError(
            Problem(f"the rows have neither `text`, nor `prompt` and `completion`, nor `input_ids`; columns: {there}")
        )
    if completion_only:
        raise DataError(
            Problem(
                "true, but the rows hold plain text: there is no completion to learn", "sft.completion_only",
                fix="give `prompt` and `completion`, or drop `sft.completion_only`",
            )
        )  # fmt: skip
    return lambda batch: _from_text(batch, tokenizer)


def _from_text(batch: Rows, tokenizer: PreTrainedTokenizerBase) -> Rows:
    texts = [text for text in batch["text"] if text and text.strip()]
    ids = [_ended(found, tokenizer) for found in _encode(texts, tokenizer)]
    return {"input_ids": ids, "labels": ids}


def _from_pairs(batch: Rows, tokenizer: PreTrainedTokenizerBase, learn_all: bool) -> Rows:
    pairs = zip(batch["prompt"], batch["completion"], strict=True)
    kept = [(p or "", c) for p, c in pairs if c and c.strip()]
    whole = _encode([p + c for p, c in kept], tokenizer)
    ids = [_ended(found, tokenizer) for found in whole]
    if learn_all:
        return {"input_ids": ids, "labels": ids}
    prompts = _encode([p for p, _ in kept], tokenizer)
    seams = [seam(prompt, found) for prompt, found in zip(prompts, whole, strict=True)]
    return {"input_ids": ids, "labels": [[IGNORE] * s + found[s:] for s, found in zip(seams, ids, strict=True)]}


def _from_ids(batch: Rows, completion_only: bool | None) -> Rows:
    """Token ids as they are: with their own labels, or with labels where every mask of the row allows them."""
    if "labels" in batch:
        return {"input_ids": batch["input_ids"], "labels": batch["labels"]}
    used = [m for m in MASKS if m in batch and not (m == "completion_mask" and completion_only is False)]
    labels = [list(ids) for ids in batch["input_ids"]]
    for mask in used:
        for row, allowed in zip(labels, batch[mask], strict=True):
            row[:] = [token if learn else IGNORE for token, learn in zip(row, allowed, strict=True)]
    return {"input_ids": batch["input_ids"], "labels": labels}


def seam(prompt: list[int], whole: list[int]) -> int:
    """Index of the first token that belongs to the completion: the length of the common beginning."""
    if whole[: len(prompt)] == prompt:
        return len(prompt)
    return next(i for i, (a, b) in enumerate(zip([*prompt, None], [*whole, None], strict=False)) if a != b)


def _encode(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Token ids with the tokenizer's own special tokens; a beginning-of-text token that the text brings too stays one."""
    if not texts:
        return []
    found: list[list[int]] = tokenizer(texts, return_attention_mask=False, verbose=False)["input_ids"]
    bos = tokenizer.bos_token_id
    if bos is None:
        return found
    return [ids[1:] if ids[:2] == [bos, bos] else ids for ids in found]


def _ended(ids: list[int], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    eos = tokenizer.eos_token_id
    return ids if eos is None or (ids and ids[-1] == eos) else [*ids, eos]


def _state(tokenizer: PreTrainedTokenizerBase) -> str:
    """What the tokens depend on. The tokenizer's padding and truncation is none of it: calling it changes that."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    state: Any = tokenizer.get_vocab() if backend is None else json.loads(backend.to_str())
    if backend is not None:
        state = {k: v for k, v in state.items() if k not in ("padding", "truncation")}
    return json.dumps([type(tokenizer).__name__, tokenizer.bos_token_id, tokenizer.eos_token_id, state], sort_keys=True)
