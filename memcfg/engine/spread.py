"""How several processes share a run: what an implementation of `memcfg_spread` gives the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


class Spread(Protocol):
    """One way to spread work (and weights) over processes through Accelerate.

    `load_on`: the device type on which the model is built: `cpu` where shards, not the whole model, go to the device."""

    load_on: str

    def join(self) -> None:
        """Make Accelerate's state, before anything is built. torch.distributed has started, with all processes in it."""
        ...

    def arguments(self, model: torch.nn.Module) -> Mapping[str, Any]:
        """What `transformers.TrainingArguments` is told about this model, beside what every run tells it."""
        ...

    def in_force(self, model: torch.nn.Module) -> tuple[str, str]:
        """What really wraps the prepared model, in the words of `distributed.strategy`, and where that was seen."""
        ...
