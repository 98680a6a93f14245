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
from memcfg_grpo.correction import Correction
from memcfg_grpo.entropy import Bonus, Steering
from memcfg_grpo.losses import Settings
from memcfg_grpo.objective import GroupRelative, SteeredGroupRelative

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg.engine.ledger import Ledger


@hookimpl(produces="tokens")
def memcfg_prepare_dataset(
    plan: Plan, dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, ledger: Ledger, split: str
) -> datasets.Dataset:
    """Prompts alone."""
    return prompts.prepared(plan, dataset, tokenizer, ledger, split, trainer="grpo")


@hookimpl
def memcfg_collator(plan: Plan) -> Callable[[list[dict[str, Any]]], Documents]:
    return prompts.collate


@hookimpl(consumes="adapter")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """Without dropout, where that is asked for."""
    return without_dropout(model) if plan["grpo.disable_dropout"] else model


@hookimpl
def memcfg_objective(plan: Plan) -> GroupRelative:
    sampled = policy.sampled_of(
        plan, plan["grpo.num_generations"], held_out=plan["grpo.num_generations_eval"], updates=plan["grpo.num_iterations"],
        shuffle=plan["grpo.shuffle"], mask_truncated=plan["grpo.mask_truncated"],
    )  # fmt: skip
    made, share = (sampled, settings(plan), correction(plan)), plan["grpo.top_entropy_quantile"]
    found = bonus(plan)
    if isinstance(found, Steering):
        return SteeredGroupRelative(*made, bonus=found, share=share)
    return GroupRelative(*made, bonus=found, share=share)


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The trainer and its loss from the objective."""
    found = [*found, *policy.evidence(plan, run, "grpo", GroupRelative)]
    if isinstance(run.objective, GroupRelative):
        found.append(Effective("grpo.loss", run.objective.settings.loss, "the objective's"))
        if plan.get("grpo.correction") is not None:
            corrected = run.objective.correction is not None
            found.append(Effective("grpo.correction", corrected, "the objective's"))
        precise = getattr(run.head, "float32", False)
        found.append(
            Effective("grpo.head_fp32", precise, f"the head is `{type(run.head).__name__}`, {run.head.describe()}")
        )
        found += _entropy(run)
    return found


def _entropy(run: Any) -> list[Effective]:
    """What is done with entropies, from the objective."""
    objective = run.objective
    steered = isinstance(objective.bonus, Steering)
    found = [
        Effective("grpo.entropy_adaptive", steered, f"the bonus is {objective.bonus}"),
        Effective("grpo.top_entropy_quantile", objective.share, "the objective's"),
    ]
    if not steered:
        coefficient = 0.0 if objective.bonus is None else objective.bonus.coefficient
        found.append(Effective("grpo.entropy_coef", coefficient, "the objective's bonus"))
    return found


def bonus(plan: Plan) -> Bonus | None:
    """What rewards entropy."""
    if plan["grpo.entropy_adaptive"]:
        return Steering(
            plan["grpo.entropy_coef"], target=plan["grpo.entropy_target"], least=plan["grpo.entropy_coef_min"],
            most=plan["grpo.entropy_coef_max"], delta=plan["grpo.entropy_coef_delta"],
        )  # fmt: skip
    return Bonus(plan["grpo.entropy_coef"]) if plan["grpo.entropy_coef"] else None


def correction(plan: Plan) -> Correction | None:
    """What makes up for a sampler that is not the trained model."""
    if not plan.get("grpo.correction"):
        return None
    return Correction(plan["grpo.correction_mode"], plan["grpo.correction_min"], plan["grpo.correction_max"])


def settings(plan: Plan) -> Settings:
    """What the losses read."""
    high = plan["grpo.epsilon_high"]
    return Settings(
        loss=plan["grpo.loss"], low=plan["grpo.epsilon"], high=plan["grpo.epsilon"] if high is None else high,
        delta=plan["grpo.delta"], by_completion=plan["grpo.importance_level"] == "sequence", beta=plan["grpo.beta"],
        kl_correction=plan["grpo.kl_correction"], off_policy=plan["grpo.off_policy_threshold"],
        scale=plan["grpo.scale_rewards"],
    )  # fmt: skip
