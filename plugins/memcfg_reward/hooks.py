"""Prepares pairs, gives the model its scalar head, and the objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import datasets
import torch

from memcfg import Plan, Problem, RunError, completions, hookimpl
from memcfg.batch import Documents
from memcfg.conversations import use_template
from memcfg.engine import pairs
from memcfg.engine.dropout import rates, without_dropout
from memcfg.engine.evidence import Effective
from memcfg.engine.forward import causal_model
from memcfg_reward.objective import MARGIN, RankedPairs
from memcfg_reward.scalar import classifier, left_on_meta, with_scalar_head

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg.engine.ledger import Ledger

FORM = completions.Form(completions.PAIR, ((MARGIN, "float64"),))
COLUMNS = (("prompt", "chosen", "rejected"), ("chosen", "rejected"))


@hookimpl(produces="tokens")
def memcfg_prepare_dataset(
    plan: Plan, dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, ledger: Ledger, split: str
) -> datasets.Dataset:
    """Rows of two documents each. A pair with a side that is too long is left out whole: a cut answer cannot be judged."""
    completions.require_columns(dataset, COLUMNS, "reward")
    if MARGIN in dataset.column_names:
        completions.require_kind(dataset, MARGIN, "float64", "each must be a number, or null")
    use_template(tokenizer, plan.get("data.chat_template"))
    limit = plan.get("truncation.max_length")
    bounds = completions.Bounds(limit, "drop", last_only=True)
    prepared = completions.prepare(dataset, tokenizer, FORM, bounds, workers=plan.get("data.num_proc"))
    fix = f"raise `truncation.max_length` (now {limit})" if limit else None
    return completions.account(prepared, ledger, split=split, fix=fix)


@hookimpl
def memcfg_collator(plan: Plan) -> Callable[[Sequence[dict[str, Any]]], Documents]:
    """The better and the worse document of each pair, one after the other, with their margin where the rows have one."""
    return collate


@hookimpl(produces="head")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model with a scalar head, before any adapter."""
    return with_scalar_head(model, plan["run.seed"])


@hookimpl
def memcfg_step_context(plan: Plan, model: torch.nn.Module, contexts: list[Any]) -> list[Any]:
    """Nothing to enter: the model is whole by now, adapter and all, so that its dropout can be switched off."""
    if plan["reward.disable_dropout"]:
        without_dropout(model)
    return contexts


@hookimpl(consumes=("peft", "quantization"))
def memcfg_export(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The architecture's sequence classifier with one label."""
    made = classifier(model)
    missing = left_on_meta(made)
    if missing:
        text = f"`{type(made).__name__}` has weights that a reward model has not: " + ", ".join(
            f"`{n}`" for n in missing
        )
        raise RunError(Problem(text, key="trainer.name"))
    return made


@hookimpl
def memcfg_objective(plan: Plan) -> RankedPairs:
    return RankedPairs(plan.get("reward.center_coefficient"))


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """Pairs to plan with."""
    return {**stands_in, "rows": lambda lengths: pairs.stand_in(lengths, 2), "documents": 2}


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The trainer from the objective and the head, dropout from the model."""
    head = causal_model(run.model).get_output_embeddings()  # type: ignore[operator]
    rows = int(head.weight.shape[0])
    name = "reward" if isinstance(run.objective, RankedPairs) and rows == 1 else type(run.objective).__name__
    evidence = f"the objective is {type(run.objective).__name__}, the head has {rows} row(s)"
    left = rates(run.model)
    found = [*found, Effective("trainer.name", name, evidence)]
    if plan["reward.disable_dropout"]:
        found.append(
            Effective("reward.disable_dropout", not left, f"{len(left)} dropout rates of the model are above zero")
        )
    return found


def collate(batch: Sequence[dict[str, Any]]) -> Documents:
    documents = pairs.collate(batch)
    if any(row.get(MARGIN) is not None for row in batch):  # a pair without a margin need only be the right way round
        margins = torch.tensor([float(row.get(MARGIN) or 0.0) for row in batch])
        documents.fields[MARGIN] = margins.repeat_interleave(2)
    return documents
