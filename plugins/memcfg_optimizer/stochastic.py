"""AdamW whose states are bfloat16, and which rounds up or down at random, in proportion to what is cut off.

Rounded to nearest, an update of less than half of a bfloat16 weight's last bit is lost, every time; rounded at random it
counts on average (Zamirai et al. 2020, "Revisiting BFloat16 Training", arXiv 2010.06192)."""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor
MOMENTS = ("exp_avg", "exp_avg_sq")


class StochasticAdamW(torch.optim.Optimizer):
    """As `torch.optim.AdamW`, computed in float32, with both moments kept in bfloat16. bfloat16 parameters are rounded at
    random, too; float32 ones are kept as they are."""

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The moments stay in bfloat16, where the base class would give them the parameters' type."""
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state.update({name: state[name].to(torch.bfloat16) for name in MOMENTS})

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            for name in MOMENTS:
                state[name] = torch.zeros_like(parameter, dtype=torch.bfloat16)
        state["step"] += 1
        (first, second), gradient = group["betas"], parameter.grad.float()  # type: ignore[union-attr]
        mean = state["exp_avg"].float().lerp_(gradient, 1 - first)
        square = state["exp_avg_sq"].float().mul_(second).addcmul_(gradient, gradient, value=1 - second)
        store_(state["exp_avg"], mean)
        store_(state["exp_avg_sq"], square)
        root = square.div_(1 - second ** state["step"]).sqrt_().add_(group["eps"])
        weights = parameter.float() if parameter.dtype != torch.float32 else parameter
        weights.mul_(1 - group["lr"] * group["weight_decay"])
        weights.addcdiv_(mean, root, value=-group["lr"] / (1 - first ** state["step"]))
        if weights is not parameter:
            store_(parameter, weights)


def store_(target: Tensor, values: Tensor) -> None:
    """Put float32 `values` into `target`: stochastically rounded if that is bfloat16. `values` is used up.

    The lower half of a float32 is what bfloat16 cuts off: a random number added to it carries into the upper half as
    often as it is large."""
    if target.dtype != torch.bfloat16:
        target.copy_(values)
        return
    bits = values.view(torch.int32)
    noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, device=bits.device)
    finite = values.isfinite()
    rounded = bits.add(noise).bitwise_and_(-(1 << 16)).view(torch.float32)
    target.copy_(torch.where(finite, rounded, values))
