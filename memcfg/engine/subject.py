"""What the canaries look at, and how they leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import torch

from memcfg.engine.joining import Group

if TYPE_CHECKING:
    from accelerate import Accelerator

    from memcfg.batch import Batch
    from memcfg.engine.build import Run
    from memcfg.engine.trainer import EngineTrainer

TOLERANCE: Final = {torch.float32: 1e-4, torch.float64: 1e-8}
"""How far a hidden state may move, relative to the root mean square, when another document changes. It is zero wherever
rows of a matrix product do not depend on each other; a leak is of the order of one."""

LOW_PRECISION_TOLERANCE: Final = 3e-2


@dataclass(frozen=True)
class Subject:
    """What is looked at: the run, with the model and optimizer as the accelerator prepared them. `held`: the names of
    the parameters that the optimizer held before that."""

    run: Run
    model: torch.nn.Module
    optimizer: Any
    accelerator: Accelerator
    held: frozenset[str] = frozenset()

    @classmethod
    def of(cls, trainer: EngineTrainer) -> Subject:
        return cls(trainer.run, trainer.model_wrapped, trainer.optimizer, trainer.accelerator, trainer.held)

    @cached_property
    def batches(self) -> list[Batch]:
        """Micro-batches of the first step. With several processes those of the first one, for all: a sharded model runs
        only where each process does the same."""
        group = Group(self.accelerator.process_index, self.accelerator.num_processes)
        shared: list[Batch] = (
            group.shared([batch.to("cpu") for batch in self.run.first]) if group.size > 1 else self.run.first
        )
        return [batch.to(self.accelerator.device) for batch in shared]


def tolerance(dtype: torch.dtype) -> float:
    """How far numbers of this kind may be apart, relative to their size, and count as the same."""
    return TOLERANCE.get(dtype, LOW_PRECISION_TOLERANCE)


@contextmanager
def same_randomness(device: str) -> Iterator[None]:
    """The same dropout each time; every generator is put back afterwards."""
    devices: Sequence[int] = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(0)
        yield
