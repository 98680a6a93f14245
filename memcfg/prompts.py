"""Prompts alone, for trainers that learn from completions which the model samples itself.

    rows = prepared(dataset, tokenizer, plan, ledger, split, trainer="grpo")      # prompts: what is sampled from
    documents = collate([completed(row, sample, advantage=0.5), ...])              # what is learned from

A prompt row has `input_ids` (the prompt's tokens, as the tokenizer or the chat template ends it before an answer) and
`about`: the row's own columns as JSON, which reward functions are given. A completed row has `input_ids` and `labels` of
one or several documents (`seq_lengths`), labels -100 on the prompt, and numbers of its own for each document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch

from memcfg import conversations, rows
from memcfg.batch import IGNORE, Documents
from memcfg.completions import require_columns
from memcfg.conversations import Beside, text_ids, use_template
from memcfg.errors import DataError, Problem
from memcfg.rollouts import Sample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg.engine.ledger import Ledger
    from memcfg.plan import Plan

VERSION = 1
"""Part of the cache's fingerprint: raise it whenever the tokens change."""

EMPTY = "an empty prompt"
TAKEN = ("prompts", "completions", "prompt_ids", "completion_ids", "finished")
"""What reward functions are given beside the columns (`memcfg.judging.arguments`)."""
LOGPROBS = "sampler_logprobs"
"""Number of a completed row that is a list for each completion: the sampler's log-probability of each token."""

FEATURES: dict[str, Any] = {
    "input_ids": datasets.List(datasets.Value("int32")),
    "about": datasets.Value("string"),
    "uncut": datasets.Value("int64"),
}


def prepared(
    plan: Plan, dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, ledger: Ledger, split: str, *, trainer: str
) -> datasets.Dataset:  # fmt: skip
    """Prompt rows. Empty prompts are dropped and counted; where `truncation.max_length` bounds prompt and completion
    together, the start of a prompt is cut. Raises `DataError` without a `prompt` column, for columns that reward functions could not
    be given, or where no row is left."""
    require_columns(dataset, (("prompt",),), trainer)
    _refuse_taken(dataset)
    use_template(tokenizer, plan.get("data.chat_template"))
    room = _room(plan)

    def made(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        found = [{name: values[i] for name, values in batch.items()} for i in range(len(batch["prompt"]))]
        ids = _ids(found, tokenizer)
        cut = [one if room is None else one[-room:] for one in ids]
        about = [json.dumps({k: v for k, v in row.items() if v is not None}, ensure_ascii=False) for row in found]
        return {"input_ids": cut, "about": about, "uncut": [len(one) for one in ids]}

    found = rows.mapped(
        dataset, made, features=datasets.Features(FEATURES), desc="tokenising",
        depends_on=["memcfg.prompts", VERSION, conversations.state(tokenizer), room], workers=plan.get("data.num_proc"),
    )  # fmt: skip
    return _account(found, ledger, split)


def _refuse_taken(dataset: datasets.Dataset) -> None:
    """Raises `DataError` for columns under whose names reward functions are given something else."""
    taken = [name for name in TAKEN if name in dataset.column_names]
    if taken:
        names = " and ".join(f"`{name}`" for name in taken)
        text = f"the rows have {names}, which is what reward functions call a part of what was sampled"
        raise DataError(Problem(text, key="data.path", fix="give the column another name"))


def _room(plan: Plan) -> int | None:
    """The longest prompt, in tokens."""
    limit = plan.get("truncation.max_length")
    return None if limit is None else int(limit) - int(plan["generation.max_new_tokens"])


def _ids(found: Sequence[Mapping[str, Any]], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Token ids up to where the completion begins; none for an empty prompt."""
    texts = iter(text_ids(tokenizer, [row["prompt"] for row in found if _is_text(row["prompt"])]))
    talks = [row for row in found if row["prompt"] and not isinstance(row["prompt"], str)]
    turns = iter(conversations.prompts(tokenizer, [r["prompt"] for r in talks], [Beside.of(r) for r in talks]))
    return [next(texts) if _is_text(row["prompt"]) else next(turns) if _is_talk(row["prompt"]) else [] for row in found]


def _is_text(prompt: Any) -> bool:
    return isinstance(prompt, str) and bool(prompt.strip())


def _is_talk(prompt: Any) -> bool:
    return bool(prompt) and not isinstance(prompt, str)


def _account(found: datasets.Dataset, ledger: Ledger, split: str) -> datasets.Dataset:
    """The rows with a prompt; what was read, cut and dropped is counted."""
    lengths, uncut = rows.lengths(found), np.asarray(found["uncut"][:], np.int64)
    keep = lengths > 0
    ledger.add(
        rows_in=len(found), tokens_in=int(uncut.sum()), tokens_kept=int(lengths.sum()),
        tokens_truncated=int((uncut - lengths).sum()),
    )  # fmt: skip
    if not keep.all():
        ledger.drop(EMPTY, rows=int((~keep).sum()), tokens=0)
    if not keep.any():
        raise DataError(Problem(f"no {split} row is left of {len(found)}: every prompt is empty", key="data.path"))
    return (found if keep.all() else found.select(np.flatnonzero(keep))).remove_columns(["uncut"])


# ---------------------------------------------------------------------------------------------------- completed rows


def completed(
    prompt: Sequence[int], samples: Sequence[Sample], *, masked: Sequence[bool], **numbers: Any
) -> dict[str, Any]:
    """The row that some completions of a prompt become, one document each. A `masked` one is no target; `numbers` holds a
    list with one entry for each completion."""
    ids = [[*prompt, *sample.ids] for sample in samples]
    labels = [
        [IGNORE] * len(whole) if hidden else [IGNORE] * len(prompt) + list(sample.ids)
        for whole, sample, hidden in zip(ids, samples, masked, strict=True)
    ]
    return {
        "input_ids": [*chain(*ids)], "labels": [*chain(*labels)], "seq_lengths": [len(one) for one in ids], **numbers,
    }  # fmt: skip


def collate(batch: Sequence[Mapping[str, Any]]) -> Documents:
    """The documents of completed rows, each in a row of its own; their numbers as float64 tensors [D]."""
    documents = Documents([], [], [])
    for row in batch:
        sizes = [int(n) for n in row["seq_lengths"]]
        documents.input_ids += torch.as_tensor(row["input_ids"], dtype=torch.int64).split(sizes)
        documents.labels += torch.as_tensor(row["labels"], dtype=torch.int64).split(sizes)
    documents.rows = [[index] for index in range(len(documents.input_ids))]
    names = [name for name in (batch[0] if batch else ()) if name not in ("input_ids", "labels", "seq_lengths")]
    for name in names:
        if name == LOGPROBS:
            documents.fields[name] = [torch.tensor(v, dtype=torch.float32) for row in batch for v in row[name]]
            continue
        documents.fields[name] = torch.tensor([v for row in batch for v in row[name]], dtype=torch.float64)
    return documents
