"""The implementations that `loss.py` compares: each takes hidden states [N, H], a weight [V, H] and targets [N] of one
GPU and gives the sum of the negative log-likelihoods with gradient. One whose package is missing is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch
import torch.nn.functional as F

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Peer:
    """`exact`: gradients are not thinned out. `whole`: it needs memory for all logits at once."""

    name: str
    call: Loss
    exact: bool = True
    whole: bool = False


def ours(kernel: str, budget: int | None) -> Loss:
    """memcfg's chunked head with this kernel; `budget` bytes of logits at once, None for its own choice."""

    def call(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        from memcfg_loss.fused.autograd import loss_sum
        from memcfg_loss.fused.score import Score
        from memcfg_loss.tokens import NLL

        from memcfg.head import HeadTransform

        return loss_sum(hidden, weight, targets, Score(HeadTransform(), kernel, hidden.device.type, NLL(), budget))

    return call


def full(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy((hidden @ weight.T).float(), targets, reduction="sum")


def trl(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction

    return -ChunkedLogProbFunction.apply(hidden, weight, None, targets, 1.0, 32768, None, 1.0, ())[0].sum()


def liger(accumulate: torch.dtype | None) -> Loss:
    def call(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        return liger_fused_linear_cross_entropy(hidden, weight, targets, reduction="sum", accum_dtype=accumulate)

    return call


def cce(filtered: str | None) -> Loss:
    def call(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        from cut_cross_entropy import linear_cross_entropy

        return linear_cross_entropy(hidden, weight, targets, reduction="sum", filter_eps=filtered)

    return call


def torch_linear(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    options = torch.nn.LinearCrossEntropyOptions()
    return F.linear_cross_entropy(hidden, weight, targets, reduction="sum", options=options)


PEERS = (
    (None, Peer("memcfg triton", ours("triton", None))),
    (None, Peer("memcfg torch", ours("torch", None))),
    ("trl", Peer("TRL fused head", trl)),
    ("liger-kernel", Peer("Liger", liger(None))),
    ("liger-kernel", Peer("Liger, float32 sums", liger(torch.float32))),
    ("cut-cross-entropy", Peer("CCE, filtered", cce("high"), exact=False)),
    ("cut-cross-entropy", Peer("CCE, unfiltered", cce(None))),
    (None, Peer("full logits", full, whole=True)),
)


def installed(package: str | None) -> bool:
    if package is None:
        return True
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def available() -> list[Peer]:
    found = [peer for package, peer in PEERS if installed(package)]
    return found + ([Peer("torch linear", torch_linear)] if hasattr(F, "linear_cross_entropy") else [])


def versions() -> dict[str, str]:
    names = ("torch", "triton", "transformers", "trl", "liger-kernel", "cut-cross-entropy")
    return {name: version(name) for name in names if installed(name)}
