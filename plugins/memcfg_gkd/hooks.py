"""Prepares prompts with completions and gives the objective."""

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
from memcfg.rollouts import OWN
from memcfg_gkd.objective import TEACHER, TaughtTokens
from memcfg_gkd.resting import Resting

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from memcfg.engine.ledger import Ledger

FORM = completions.Form(("completion",))
COLUMNS = (("prompt", "completion"), ("messages",))
CHUNK_MIB = 64
"""Logits that are alive at once where `loss.chunk_mib` is null."""


@hookimpl(produces="tokens")
def memcfg_prepare_dataset(
    plan: Plan, dataset: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, ledger: Ledger, split: str
) -> datasets.Dataset:
    """Rows of one document each. Of a conversation the assistant's last turn is the completion."""
    return completions.prepared_rows(plan, dataset, tokenizer, ledger, split, columns=COLUMNS, form=FORM, trainer="gkd")


@hookimpl
def memcfg_collator(plan: Plan) -> Callable[[list[dict[str, Any]]], Documents]:
    return pairs.collate


@hookimpl(consumes="adapter")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """Without dropout, which would blur what the student is compared in."""
    return without_dropout(model) if plan["gkd.disable_dropout"] else model


@hookimpl
def memcfg_objective(plan: Plan) -> TaughtTokens:
    mib = plan.get("loss.chunk_mib")
    budget = (CHUNK_MIB if mib is None else mib) << 20
    return TaughtTokens(
        plan["gkd.teacher"], plan["gkd.beta"], budget, rests=bool(plan.get("gkd.teacher_offload")), own=plan["gkd.lmbda"],
        sequences=plan["gkd.seq_kd"], limit=plan["generation.max_new_tokens"],
    )  # fmt: skip


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """Rows to plan with."""
    return {**stands_in, "rows": lambda lengths: pairs.stand_in(lengths, 1)}


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """The trainer from the objective and its teacher, dropout from the model."""
    objective = run.objective
    taught = isinstance(objective, TaughtTokens) and objective.teacher is not None
    name = "gkd" if taught else type(objective).__name__
    if taught:
        size = sum(p.numel() for p in objective.teacher.parameters())
        found = [*found, Effective("gkd.beta", objective.beta, f"a teacher of {size:,} frozen weights")]
        if objective.renews:
            share = f"{objective.sampled[OWN]} step(s) on the student's completions, {objective.sampled[TEACHER]} on the teacher's"
            found += [
                Effective("gkd.lmbda", objective.own, share), Effective("gkd.seq_kd", objective.sequences, share),
            ]  # fmt: skip
        if plan.get("gkd.teacher_offload") is not None:
            found.append(_rest(objective.resting))
    found = [*found, Effective("trainer.name", name, f"the objective is {type(objective).__name__}")]
    left = rates(run.model)
    if plan["gkd.disable_dropout"]:
        found.append(
            Effective("gkd.disable_dropout", not left, f"{len(left)} dropout rates of the model are above zero")
        )
    return found


def _rest(resting: Resting | None) -> Effective:
    if resting is None:
        return Effective("gkd.teacher_offload", False, "the teacher stays on its device")
    text = (
        f"{resting.bytes / 2**20:.1f} MiB of it on the device during {resting.times} forwards, on the host between them"
    )
    return Effective("gkd.teacher_offload", resting.times > 0 and resting.asleep, text)
