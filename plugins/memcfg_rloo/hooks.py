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
from memcfg_rloo.objective import LeaveOneOut, Settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg.engine.ledger import Ledger


@hookimpl(produces="tokens")
def memcfg_prepare_dataset(
    plan: Plan, dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, ledger: Ledger, split: str
) -> datasets.Dataset:
    """Prompts alone."""
    return prompts.prepared(plan, dataset, tokenizer, ledger, split, trainer="rloo")


@hookimpl
def memcfg_collator(plan: Plan) -> Callable[[list[dict[str, Any]]], Documents]:
    return prompts.collate


@hookimpl(consumes="adapter")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """Without dropout, where that is asked for."""
    return without_dropout(model) if plan["rloo.disable_dropout"] else model


@hookimpl
def memcfg_objective(plan: Plan) -> LeaveOneOut:
    sampled = policy.sampled_of(
        plan, plan["rloo.num_generations"], held_out=plan["rloo.num_generations_eval"], updates=plan["rloo.num_iterations"],
        shuffle=plan["rloo.shuffle"], mask_truncated=plan["rloo.mask_truncated"],
    )  # fmt: skip
    return LeaveOneOut(sampled, settings(plan))


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The trainer and the strength of its penalty from the objective."""
    found = [*found, *policy.evidence(plan, run, "rloo", LeaveOneOut)]
    if isinstance(run.objective, LeaveOneOut):
        found.append(Effective("rloo.beta", run.objective.settings.beta, "the objective's"))
    return found


def settings(plan: Plan) -> Settings:
    """What the objective reads."""
    high, bounds = plan["rloo.epsilon_high"], plan["rloo.reward_clip"]
    return Settings(
        beta=plan["rloo.beta"], low=plan["rloo.epsilon"], high=plan["rloo.epsilon"] if high is None else high,
        normalize=plan["rloo.normalize_advantages"], bounds=None if bounds is None else (bounds[0], bounds[1]),
    )  # fmt: skip
