"""Tokenises rows, collates them into documents and gives the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets
import pyarrow as pa
import torch

from memcfg import DataError, Plan, Problem, conversations, hookimpl, rows
from memcfg.batch import Documents
from memcfg.conversations import use_template
from memcfg.engine.evidence import Effective
from memcfg_sft.objective import SupervisedTokens
from memcfg_sft.tokens import FEATURES, Learned, log, maker, nested, tokenise

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedTokenizerBase

    from memcfg.engine.ledger import Ledger

EMPTY = "no text"
"""The ledger's reason for rows whose text or completion is empty."""
LONG = 1024
"""The length that a user is told where the one they gave is too short for anything."""
AT_A_TIME = 64
"""Rows of a stream that are tokenised at a time."""


@hookimpl(produces="tokens")
def memcfg_prepare_dataset(
    plan: Plan, dataset: datasets.Dataset | datasets.IterableDataset, tokenizer: PreTrainedTokenizerBase, ledger: Ledger,
    split: str,
) -> datasets.Dataset | datasets.IterableDataset:  # fmt: skip
    """Rows of `input_ids` and `labels` that have at least one target; all that was read is counted."""
    if tokenizer.eos_token_id is None:
        log.warning("the tokenizer has no end-of-text token: the model will not learn where a document ends")
    use_template(tokenizer, plan.get("data.chat_template"))
    learned = Learned(plan.get("sft.completion_only"), bool(plan.get("sft.assistant_only")))
    first = first_row(dataset, ledger)
    refuse_too_short(plan, first, tokenizer)
    if isinstance(dataset, datasets.IterableDataset):
        return streamed(
            dataset, first, tokenizer, learned, ledger, min(AT_A_TIME, plan.get("packing.buffer") or AT_A_TIME)
        )
    tokens = tokenise(dataset, tokenizer, learned, plan.get("data.num_proc"))
    if not len(tokens):
        raise DataError(Problem(f"all {len(dataset)} {split} rows are empty"))
    count = int(rows.lengths(tokens).sum())
    ledger.add(
        rows_in=len(dataset), tokens_in=count, tokens_kept=count, tokens_supervised=int(rows.targets(tokens).sum())
    )
    ledger.drop(EMPTY, rows=len(dataset) - len(tokens), tokens=0)
    return rows.drop_without_targets(tokens, ledger, split=split, fix="every label is masked: look at the labels")


def first_row(dataset: datasets.Dataset | datasets.IterableDataset, ledger: Ledger) -> dict[str, Any]:
    """The first row, which will be read again. Raises `DataError` where there is none."""
    counts = ledger.state_dict()
    first = next(iter(dataset), None)
    ledger.load_state_dict(counts)
    if first is None:
        held = isinstance(dataset, datasets.Dataset)
        raise DataError(Problem("there are no rows" if held else "the stream has no rows"))
    return dict(first)


def refuse_too_short(plan: Plan, first: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise `DataError` for a length that is full before a document's first word."""
    limit = plan.get("truncation.max_length")
    goes_on = plan.get("packing.strategy") in ("bfd_split", "wrapped")
    if limit is None or goes_on or plan.get("truncation.mode") == "keep_end":
        return
    begins = conversations.beginning(tokenizer, first)
    if begins >= limit:
        own = f"{begins} token{'s' if begins > 1 else ''} of the tokenizer and its template"
        text = f"{limit} leaves no word of a document, for each begins with {own}"
        raise DataError(Problem(text, "truncation.max_length", fix=f"raise it, as in `truncation.max_length={LONG}`"))


def streamed(
    dataset: datasets.IterableDataset, first: dict[str, Any], tokenizer: PreTrainedTokenizerBase, learned: Learned,
    ledger: Ledger, size: int,
) -> datasets.IterableDataset:  # fmt: skip
    """The same of rows that come one after another, `size` of them tokenised at a time; counted as they come."""
    structs = [name for name, feature in (dataset.features or {}).items() if nested(feature)]
    make = maker(list(first), tokenizer, learned, structs)

    def tokens(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        made = pa.table(make(batch), schema=FEATURES.arrow_schema)
        targets, count = rows.targets(made), int(rows.lengths(made).sum())
        read = len(next(iter(batch.values())))
        ledger.add(rows_in=read, tokens_in=count, tokens_kept=count, tokens_supervised=int(targets.sum()))
        ledger.drop(EMPTY, rows=read - len(made), tokens=0)
        return rows.table_with_targets(made, ledger).to_pydict()

    return dataset.map(tokens, batched=True, batch_size=size, remove_columns=list(first))


@hookimpl
def memcfg_collator(plan: Plan) -> Callable[[list[dict[str, Any]]], Documents]:
    """Splits rows into their documents."""
    return collate


@hookimpl
def memcfg_objective(plan: Plan) -> SupervisedTokens:
    """The summed token loss over supervised targets."""
    return SupervisedTokens()


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The trainer, from the objective that was built."""
    supervised = isinstance(run.objective, SupervisedTokens)
    name = "sft" if supervised else type(run.objective).__name__
    return [*found, Effective("trainer.name", name, f"the objective is {type(run.objective).__name__}")]


def collate(batch: list[dict[str, Any]]) -> Documents:
    """The documents of some rows: as many as `seq_lengths` says where a row has it, else one."""
    documents = Documents([], [], [])
    for row in batch:
        ids = torch.as_tensor(row["input_ids"], dtype=torch.int64)
        labels = torch.as_tensor(row.get("labels", row["input_ids"]), dtype=torch.int64)
        sizes = [int(n) for n in row["seq_lengths"]] if row.get("seq_lengths") is not None else [len(ids)]
        first = len(documents.input_ids)
        documents.input_ids += ids.split(sizes)
        documents.labels += labels.split(sizes)
        documents.rows.append(list(range(first, first + len(sizes))))
    return documents
