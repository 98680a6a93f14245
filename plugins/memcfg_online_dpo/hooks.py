"""Prepares prompts and gives the objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import datasets
import torch

from memcfg import Plan, hookimpl, prompts
from memcfg.batch import Documents
from memcfg.engine import policy
from memcfg.engine.dropout import without_dropout
from memcfg.engine.evidence import Effective
from memcfg_online_dpo.objective import SampledPairs, Settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg.engine.ledger import Ledger


@hookimpl(produces="tokens")
def memcfg_prepare_dataset(
    plan: Plan, dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, ledger: Ledger, split: str
) -> datasets.Dataset:
    """Prompts alone."""
    return prompts.prepared(plan, dataset, tokenizer, ledger, split, trainer="online_dpo")


@hookimpl
def memcfg_collator(plan: Plan) -> Callable[[list[dict[str, Any]]], Documents]:
    return prompts.collate


@hookimpl(consumes="adapter")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """Without dropout, where that is asked for."""
    return without_dropout(model) if plan["online_dpo.disable_dropout"] else model


@hookimpl
def memcfg_objective(plan: Plan) -> SampledPairs:
    return SampledPairs(policy.sampled_of(plan, completions=2), settings(plan))


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The trainer and its loss from the objective."""
    found = [*found, *policy.evidence(plan, run, "online_dpo", SampledPairs)]
    if isinstance(run.objective, SampledPairs):
        found.append(Effective("online_dpo.loss", run.objective.settings.loss, "the objective's"))
    return found


def settings(plan: Plan) -> Settings:
    """What the objective reads."""
    return Settings(
        plan["online_dpo.loss"],
        plan["online_dpo.beta"],
        plan["online_dpo.judge"],
        plan["online_dpo.missing_eos_penalty"],
    )
