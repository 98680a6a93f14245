"""Prepares pairs, collates them and gives the objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import datasets
import torch

from memcfg import Plan, completions, hookimpl
from memcfg.batch import Documents
from memcfg.engine import pairs
from memcfg.engine.dropout import rates, without_dropout
from memcfg.engine.evidence import Effective
from memcfg_dpo.losses import Settings
from memcfg_dpo.objective import PreferencePairs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg.engine.ledger import Ledger

FORM = completions.Form(completions.PAIR)
COLUMNS = (("prompt", "chosen", "rejected"), ("chosen", "rejected"))


@hookimpl(produces="tokens")
def memcfg_prepare_dataset(
    plan: Plan, dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, ledger: Ledger, split: str
) -> datasets.Dataset:
    """Rows of two documents each, prompt and completion, cut together."""
    return completions.prepared_rows(plan, dataset, tokenizer, ledger, split, columns=COLUMNS, form=FORM, trainer="dpo")


@hookimpl
def memcfg_collator(plan: Plan) -> Callable[[list[dict[str, Any]]], Documents]:
    """The better and the worse document of each pair, one after the other."""
    return pairs.collate


@hookimpl(consumes="adapter")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """Without dropout, which would make the policy differ from its reference by chance."""
    return without_dropout(model) if plan["dpo.disable_dropout"] else model


@hookimpl
def memcfg_objective(plan: Plan) -> PreferencePairs:
    return PreferencePairs(
        settings(plan), plan.get("dpo.ld_alpha"), weighting=bool(plan.get("dpo.weighting")),
        watching=bool(plan["dpo.watch_tokens"]),
    )  # fmt: skip


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """Pairs to plan with."""
    return {**stands_in, "rows": lambda lengths: pairs.stand_in(lengths, 2), "documents": 2}


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The trainer and its loss from the objective, dropout from the model, the strength from the rewards that were logged."""
    objective = run.objective
    name = "dpo" if isinstance(objective, PreferencePairs) else type(objective).__name__
    found = [*found, Effective("trainer.name", name, f"the objective is {type(objective).__name__}")]
    if isinstance(objective, PreferencePairs):
        used = objective.settings.losses
        loss = next(iter(used)) if len(used) == 1 and plan["dpo.loss"] != "mixture" else "mixture"
        found.append(Effective("dpo.loss", loss, ", ".join(f"{weight:g} x {name}" for name, weight in used.items())))
        found.append(Effective("dpo.beta", objective.settings.beta, "the objective's"))
        found.append(Effective("dpo.watch_tokens", objective.watching, "the objective's"))
    left = rates(run.model)
    if plan["dpo.disable_dropout"]:
        found.append(
            Effective("dpo.disable_dropout", not left, f"{len(left)} dropout rates of the model are above zero")
        )
    return found


def settings(plan: Plan) -> Settings:
    """What the losses read."""
    name = plan["dpo.loss"]
    losses = dict(plan["dpo.mixture"]) if name == "mixture" else {name: 1.0}
    return Settings(
        losses, plan["dpo.beta"], plan["dpo.label_smoothing"], plan["dpo.f_divergence"], plan.get("dpo.f_alpha", 0.5),
        plan.get("dpo.discopop_tau", 0.05),
    )  # fmt: skip
