"""Implementations of the loss plugin's hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memcfg import hookimpl
from memcfg.engine.evidence import Effective
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.full import FullHead
from memcfg_loss.heads import prove, transform_of
from memcfg_loss.tokens import DFT, NLL

if TYPE_CHECKING:
    import torch

    from memcfg import Plan
    from memcfg.batch import Head, TokenLoss

LOSSES: dict[str, type[TokenLoss]] = {"chunked_nll": NLL, "nll": NLL, "dft": DFT}


@hookimpl
def memcfg_loss(plan: Plan) -> TokenLoss:
    return LOSSES[plan["loss.type"]]()


@hookimpl
def memcfg_head(plan: Plan, model: torch.nn.Module) -> Head:
    if plan["loss.kernel"] == "full":
        return FullHead()
    transform = transform_of(model)
    prove(model, transform)
    return ChunkedHead(transform, budget=plan["loss.chunk_mib"] << 20)


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    kernel = getattr(run.head, "kernel", None)
    if plan["loss.kernel"] in ("torch", "full"):
        found.append(
            Effective("loss.kernel", kernel, f"the model's head is `{type(run.head).__name__}`, {run.head.describe()}")
        )
    if run.loss is not None and plan["loss.type"] in LOSSES:
        expected = LOSSES[plan["loss.type"]]
        effective = plan["loss.type"] if type(run.loss) is expected else type(run.loss).__name__
        found.append(Effective("loss.type", effective, f"tokens are scored by `{type(run.loss).__name__}`"))
    return found
