"""Linear cross-entropy of other packages as the model's head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from memcfg import Problem, RunError
from memcfg.batch import TokenLoss
from memcfg.head import HeadTransform, LinearHead, OutputLayer, Targets

Tensor = torch.Tensor
Product = Callable[[Tensor, Tensor, Tensor | None, Tensor, float | None], Tensor]
"""(hidden [N, H], weight [V, H], bias [V] or None, targets [N], soft cap) -> negative log-likelihoods [N]."""

OTHER = "loss.kernel=triton"


def cut(hidden: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, softcap: float | None) -> Tensor:
    """cut-cross-entropy with every gradient kept: by default it leaves out those that bfloat16 would round away."""
    from cut_cross_entropy import linear_cross_entropy

    if bias is not None:
        raise _unfit("cce", "a bias")
    return linear_cross_entropy(hidden, weight, ids, softcap=softcap, reduction="none", filter_eps=None)


def torch_linear(hidden: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, softcap: float | None) -> Tensor:
    """torch's own, in chunks."""
    if softcap is not None:
        raise _unfit("torch_linear", "a soft cap")
    options = torch.nn.LinearCrossEntropyOptions()  # type: ignore[attr-defined]
    return F.linear_cross_entropy(  # type: ignore[attr-defined]
        hidden, weight, ids, linear_bias=bias, reduction="none", options=options
    )


PRODUCTS: dict[str, Product] = {"cce": cut, "torch_linear": torch_linear}


@dataclass(frozen=True)
class ForeignHead(LinearHead):
    """A head that leaves the product and the loss to another package. Only the negative log-likelihood is known to it."""

    transform: HeadTransform
    kernel: str

    def summed(self, layer: OutputLayer, hidden: Tensor, targets: Targets, loss: TokenLoss) -> Tensor:
        return self._losses(layer, hidden, targets, 1.0).sum()

    def scored(self, layer: OutputLayer, hidden: Tensor, targets: Targets, temperature: float) -> Tensor:
        return -self._losses(layer, hidden, targets, temperature)

    def describe(self) -> str:
        return f"{self.kernel}, {self.transform.describe()}"

    def _losses(self, layer: OutputLayer, hidden: Tensor, targets: Targets, temperature: float) -> Tensor:
        rows, bias = self.rows_and_bias(layer, hidden, targets, temperature)
        return PRODUCTS[self.kernel](rows, layer.weight, bias, targets.ids, self.transform.softcap).float()


def check(layer: OutputLayer, transform: HeadTransform, kernel: str) -> None:
    """Raises `RunError`, before anything runs, for a head that the package has no form of."""
    if kernel == "cce" and layer.bias is not None:
        raise _unfit(kernel, "a bias")
    if kernel == "torch_linear" and transform.softcap is not None:
        raise _unfit(kernel, "a soft cap")


def _unfit(kernel: str, what: str) -> RunError:
    return RunError(Problem(f"`{kernel}` has no form for a head with {what}", key="loss.kernel", fix=OTHER))
