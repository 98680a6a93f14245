"""Implementations of the loss plugin's hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memcfg import hookimpl
from memcfg.engine.evidence import Effective
from memcfg.head.architectures import prove, transform_of
from memcfg.head.layer import output_layer
from memcfg_loss.chunked import ChunkedHead
from memcfg_loss.full import FullHead
from memcfg_loss.tokens import DFT, NLL

if TYPE_CHECKING:
    import torch

    from memcfg import Plan
    from memcfg.batch import Head, TokenLoss

LOSSES: dict[str, type[TokenLoss]] = {"chunked_nll": NLL, "nll": NLL, "dft": DFT}


@hookimpl
def memcfg_loss(plan: Plan) -> TokenLoss:
    if plan["loss.type"] == "dft":
        return DFT()
    return NLL(plan.get("loss.label_smoothing", 0.0), plan.get("loss.z_loss", 0.0))


@hookimpl
def memcfg_head(plan: Plan, model: torch.nn.Module) -> Head:
    if plan["loss.kernel"] == "full":
        return FullHead()
    transform, layer = transform_of(model), output_layer(model)
    prove(model, transform)
    mib = plan.get("loss.chunk_mib")
    budget, precise = None if mib is None else mib << 20, plan.get("grpo.head_fp32") is True
    head = ChunkedHead(transform, budget, plan.device, plan["loss.kernel"], precise)
    head.rows(layer.vocabulary, head.dtype(layer.weight, layer.weight).itemsize)
    return head


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    kernel = getattr(run.head, "kernel", None)
    if plan["loss.kernel"] in ("torch", "triton", "full"):
        found.append(
            Effective("loss.kernel", kernel, f"the model's head is `{type(run.head).__name__}`, {run.head.describe()}")
        )
    if run.loss is not None and plan["loss.type"] in LOSSES:
        expected = LOSSES[plan["loss.type"]]
        effective = plan["loss.type"] if type(run.loss) is expected else type(run.loss).__name__
        found.append(Effective("loss.type", effective, f"tokens are scored by `{type(run.loss).__name__}`"))
    return found
