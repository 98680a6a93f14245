"""The optimizer's step taken apart: each parameter moves as soon as its gradient is complete, which is then freed.

Without clipping and accumulation this is the same step, and instead of all gradients only one is alive at a time (Lv et
al. 2023, "Full Parameter Fine-tuning for Large Language Models with Limited Resources", arXiv 2306.09782)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class InBackward(torch.optim.Optimizer):
    """Wraps an optimizer. Its own `step` does nothing; groups and states are those of `inner`, so that schedulers and
    checkpoints work as ever. `moved` counts the parameters moved so far."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.moved = 0
        super().__init__(inner.param_groups, inner.defaults)
        self.param_groups = inner.param_groups
        self.state = inner.state
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.register_post_accumulate_grad_hook(self._mover(group))

    def _mover(self, group: dict[str, Any]) -> Callable[[torch.Tensor], None]:
        def move(parameter: torch.Tensor) -> None:
            groups = self.inner.param_groups
            self.inner.param_groups = [{**group, "params": [parameter]}]  # with the learning rate of this moment
            try:
                self.inner.step()
            finally:
                self.inner.param_groups = groups
            parameter.grad = None
            self.moved += 1

        return move

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Everything has moved already."""

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.inner.load_state_dict(state_dict)
        for mine, theirs in zip(self.param_groups, self.inner.param_groups, strict=True):
            mine.update({key: value for key, value in theirs.items() if key != "params"})
        self.inner.param_groups, self.state = self.param_groups, self.inner.state
