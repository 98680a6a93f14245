"""AdamW whose float32 weights and states lie in host memory: the device keeps weights and gradients alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.adamw import adamw


class OffloadedAdamW(torch.optim.Optimizer):
    """Gradients are copied to the host, `torch.optim.AdamW` moves float32 copies of the weights there, and these are
    copied back. Groups belong to the device's parameters; states are keyed by them and lie on the host."""

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        moving = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        for _, parameter in moving:
            self._fetch(parameter)
        if any(parameter.is_cuda for _, parameter in moving):
            torch.cuda.synchronize()
        for group, parameter in moving:
            self._move(parameter, group)
            parameter.copy_(self.state[parameter]["weights"], non_blocking=True)

    def _fetch(self, parameter: torch.nn.Parameter) -> None:
        """The gradient begins to be copied to the host."""
        state, pin = self.state[parameter], parameter.is_cuda
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["weights"] = _on_host(parameter, pin)
            state["exp_avg"] = torch.zeros_like(state["weights"])
            state["exp_avg_sq"] = torch.zeros_like(state["weights"])
            state["gradient"] = torch.empty(parameter.shape, dtype=torch.float32, pin_memory=pin)
        assert parameter.grad is not None
        # converted on the device: the host would convert in the way of its own work
        state["gradient"].copy_(parameter.grad.float(), non_blocking=True)

    def _move(self, parameter: torch.nn.Parameter, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        adamw(
            [state["weights"]], [state["gradient"]], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]],
            fused=True, amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
            weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Without the buffers for gradients."""
        saved = super().state_dict()
        saved["state"] = {i: {k: v for k, v in s.items() if k != "gradient"} for i, s in saved["state"].items()}
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The states stay on the host and in float32, where the base class would move them to the parameters."""
        super().load_state_dict({**state_dict, "state": {}})
        parameters = [p for group in self.param_groups for p in group["params"]]
        for index, state in state_dict["state"].items():
            parameter = parameters[int(index)]
            pin = parameter.is_cuda
            mine = {name: _on_host(value, pin and name == "weights") for name, value in state.items()}
            mine["gradient"] = torch.empty(parameter.shape, dtype=torch.float32, pin_memory=pin)
            self.state[parameter] = mine


def _on_host(tensor: torch.Tensor, pin: bool) -> torch.Tensor:
    made = torch.empty(tensor.shape, dtype=torch.float32, pin_memory=pin)
    return made.copy_(tensor)
