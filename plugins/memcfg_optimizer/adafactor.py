"""Adafactor that holds no float32 copies of a large tensor.

Transformers' own makes four of each tensor at once, of the embeddings above all. What it computes needs sums over rows and over
columns and the length of the whole update, which can be had a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from transformers.optimization import Adafactor as Whole

Tensor = torch.Tensor
LARGE: Final = 1 << 24
"""Elements from which on a tensor is worked on in blocks."""
BLOCK: Final = 1 << 22
"""Elements of a block."""


class Adafactor(Whole):
    """Transformers' Adafactor with the learning rate that it is given. Large matrices are moved block by block, the rest by
    Transformers. States are float32, after a checkpoint too."""

    def __init__(self, params: Any, lr: float, weight_decay: float = 0.0) -> None:
        # the rate of the plan, as for every other optimizer, and not one relative to the weights
        rate = {"scale_parameter": False, "relative_step": False, "warmup_init": False}
        super().__init__(params, lr=lr, weight_decay=weight_decay, **rate)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        groups = self.param_groups
        self.param_groups = [{**group, "params": [p for p in group["params"] if not _large(p)]} for group in groups]
        try:
            super().step()
        finally:
            self.param_groups = groups
        for group in groups:
            for parameter in group["params"]:
                if parameter.grad is not None and _large(parameter):
                    self._move(parameter, parameter.grad, group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The states stay in float32, where the base class would round them to the parameters' type."""
        super().load_state_dict(state_dict)
        parameters = [p for group in self.param_groups for p in group["params"]]
        for index, saved in state_dict["state"].items():
            parameter = parameters[int(index)]
            exact = {k: v.to(parameter.device, copy=True) for k, v in saved.items() if isinstance(v, Tensor)}
            self.state[parameter].update(exact)

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        rows, columns = self._means(parameter, gradient, group)
        along, across = (rows / rows.mean(-1, keepdim=True)).rsqrt_(), columns.rsqrt()
        squares = gradient.new_zeros((), dtype=torch.float32)
        for at in _blocks(parameter):
            squares += _direction(gradient, along, across, at).square_().sum()
        length = squares.sqrt_() / parameter.numel() ** 0.5
        rate = group["lr"] / (length / group["clip_threshold"]).clamp_(min=1.0)
        weights = _stacked(parameter)
        for at in _blocks(parameter):
            values = weights[at].float()
            values.mul_(1 - group["lr"] * group["weight_decay"])
            values.sub_(_direction(gradient, along, across, at).mul_(rate))
            weights[at].copy_(values)

    def _means(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Both factors of the second moment after this step: of rows [..., R] and of columns [..., C]."""
        state, shape = self.state[parameter], parameter.shape
        kind = {"dtype": torch.float32, "device": parameter.device}
        if not state:
            state |= {"step": 0, "RMS": 0, "exp_avg_sq_row": torch.zeros(shape[:-1], **kind)}  # type: ignore[call-overload]
            state["exp_avg_sq_col"] = torch.zeros(*shape[:-2], shape[-1], **kind)  # type: ignore[call-overload]
        state["step"] += 1
        fresh = (1.0 * state["step"]) ** group["decay_rate"]
        row, column = (state[name].view(-1, state[name].shape[-1]) for name in ("exp_avg_sq_row", "exp_avg_sq_col"))
        row.mul_(1 - fresh)
        column.mul_(1 - fresh)
        for at in _blocks(parameter):
            square = _stacked(gradient)[at].float().square().add_(group["eps"][0])
            row[at] += square.mean(-1).mul_(fresh)
            column[at[0]] += square.sum(-2).mul_(fresh / shape[-2])
        return row, column


def _large(parameter: Tensor) -> bool:
    """Whether it is moved in blocks: a matrix, or several, of that many elements without gaps, with a gradient of the kind."""
    fits = parameter.numel() >= LARGE and parameter.dim() >= 2 and parameter.is_contiguous()
    return fits and parameter.grad is not None and parameter.grad.is_contiguous()


def _stacked(tensor: Tensor) -> Tensor:
    return tensor.view(-1, *tensor.shape[-2:])


def _blocks(parameter: Tensor) -> Iterator[tuple[int, slice]]:
    """Which matrix of the stack, and which of its rows."""
    count = max(1, BLOCK // parameter.shape[-1])
    for matrix in range(_stacked(parameter).shape[0]):
        for start in range(0, parameter.shape[-2], count):
            yield matrix, slice(start, start + count)


def _direction(gradient: Tensor, along: Tensor, across: Tensor, at: tuple[int, slice]) -> Tensor:
    """A block of the update, before it is shortened: float32, new."""
    return (_stacked(gradient)[at] * across[at[0]]).mul_(along[at][:, None])
