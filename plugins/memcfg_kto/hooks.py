"""Prepares marked completions, collates them with their mismatched ones, and gives the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch

from memcfg import DataError, Plan, Problem, completions, hookimpl, rows
from memcfg.batch import Documents
from memcfg.conversations import use_template
from memcfg.engine import pairs
from memcfg.engine.dropout import rates, without_dropout
from memcfg.engine.evidence import Effective
from memcfg_kto.mismatched import mismatched
from memcfg_kto.objective import DESIRABLE, MarkedCompletions, Settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg.engine.ledger import Ledger

MARKED = completions.Form(("completion",), (("label", "bool"),))
PAIRED = completions.Form(completions.PAIR, apart=True)
COLUMNS = (("prompt", "completion", "label"), ("prompt", "chosen", "rejected"), ("chosen", "rejected"))
ALONE = "the last of its micro-batch, with no other row to estimate the divergence from"
FAIR = (1.0, 4 / 3)
"""How the weighted numbers of desirable and undesirable rows should compare, by the KTO paper (equation 8)."""


@hookimpl(produces="tokens")
def memcfg_prepare_dataset(
    plan: Plan, dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, ledger: Ledger, split: str
) -> datasets.Dataset:
    """Rows of one document each with its mark. Pairs become two rows. The end of a completion is cut, never a prompt."""
    completions.require_columns(dataset, COLUMNS, "kto")
    use_template(tokenizer, plan.get("data.chat_template"))
    paired = "chosen" in dataset.column_names
    if not paired:
        _check_marks(dataset)
    limit = plan.get("truncation.max_length")
    bounds, form = completions.Bounds(limit, "keep_start"), PAIRED if paired else MARKED
    prepared = completions.prepare(dataset, tokenizer, form, bounds, workers=plan.get("data.num_proc"))
    fix = f"raise `truncation.max_length` (now {limit})" if limit else None
    found = completions.account(prepared, ledger, split=split, fix=fix)
    if plan["kto.loss"] == "kto":
        found = _without_single(found, plan["run.batch_size"], ledger)
    if split == "train":
        _compare(plan, np.asarray(found["label"][:], bool), ledger)
    return found


@dataclass(frozen=True)
class Collator:
    """Documents of the rows, and beside them their mismatched ones where the loss estimates a divergence."""

    estimates: bool
    limit: int | None

    def __call__(self, batch: Sequence[dict[str, Any]]) -> Documents:
        documents = pairs.collate(batch)
        documents.fields[DESIRABLE] = torch.tensor([bool(row["label"]) for row in batch])
        others = mismatched(batch, self.limit) if self.estimates else []
        documents.aside = pairs.collate(others) if others else None
        return documents


@hookimpl
def memcfg_collator(plan: Plan) -> Collator:
    return Collator(plan["kto.loss"] == "kto", plan.get("truncation.max_length"))


@hookimpl(consumes="adapter")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """Without dropout, which would make the policy differ from its reference by chance."""
    return without_dropout(model) if plan["kto.disable_dropout"] else model


@hookimpl
def memcfg_objective(plan: Plan) -> MarkedCompletions:
    return MarkedCompletions(
        Settings(plan["kto.loss"], plan["kto.beta"], plan["kto.desirable_weight"], plan["kto.undesirable_weight"]),
        watching=bool(plan["kto.watch_tokens"]),
    )


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """Marked completions to plan with."""
    return {**stands_in, "rows": lambda lengths: [row | {"label": True} for row in pairs.stand_in(lengths, 1)]}


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The trainer and its loss from the objective, dropout from the model."""
    objective = run.objective
    name = "kto" if isinstance(objective, MarkedCompletions) else type(objective).__name__
    found = [*found, Effective("trainer.name", name, f"the objective is {type(objective).__name__}")]
    if isinstance(objective, MarkedCompletions) and run.first:
        beside = sum(len(b.aside.lengths) for b in run.first if b.aside is not None)
        estimates = objective.settings.loss == "kto"
        effective = objective.settings.loss if estimates == bool(beside) else f"{beside} mismatched completions"
        found.append(Effective("kto.loss", effective, f"{beside} mismatched completions in the first step"))
        found.append(Effective("kto.watch_tokens", objective.watching, "the objective's"))
    left = rates(run.model)
    if plan["kto.disable_dropout"]:
        found.append(
            Effective("kto.disable_dropout", not left, f"{len(left)} dropout rates of the model are above zero")
        )
    return found


def _check_marks(dataset: datasets.Dataset) -> None:
    completions.require_kind(dataset, "label", "bool", "each must be true (desirable) or false")
    if any(mark is None for mark in dataset["label"][:]):
        raise DataError(
            Problem("some rows have no mark in `label`: each must be true (desirable) or false", key="label")
        )


def _without_single(found: datasets.Dataset, size: int, ledger: Ledger) -> datasets.Dataset:
    """Without the last row, if it would come to lie in a micro-batch of its own."""
    if len(found) % size != 1 or len(found) == 1:
        return found
    last = found.select([len(found) - 1])
    tokens = int(rows.lengths(last).sum())
    ledger.drop(ALONE, rows=1, tokens=tokens)
    ledger.add(tokens_kept=-tokens, tokens_supervised=-int(rows.targets(last).sum()))
    return found.select(range(len(found) - 1))


def _compare(plan: Plan, marks: np.ndarray, ledger: Ledger) -> None:
    """Raises `DataError` where all rows are marked alike; notes weights that leave one side far behind."""
    good, bad = int(marks.sum()), int((~marks).sum())
    if not good or not bad:
        which = "undesirable" if good else "desirable"
        raise DataError(Problem(f"none of the {len(marks)} training rows is {which}: there is nothing to tell apart"))
    share = plan["kto.desirable_weight"] * good / max(plan["kto.undesirable_weight"] * bad, 1e-9)
    if not (FAIR[0] - 1e-6 <= share <= FAIR[1] + 1e-6):
        ledger.notes.append(
            f"{good:,} desirable and {bad:,} undesirable rows weigh {share:.2f} to 1; the KTO paper advises 1 to 1.33: "
            f"`kto.desirable_weight={plan['kto.undesirable_weight'] * bad / good:.2g}` would balance them"
        )
