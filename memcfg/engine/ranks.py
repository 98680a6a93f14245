"""`Ranks` for what Accelerate runs: one process, DDP, FSDP2 or DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from memcfg.engine.update import ALONE, Count, Ranks

if TYPE_CHECKING:
    from accelerate import Accelerator


def ranks_of(accelerator: Accelerator) -> Ranks:
    """How this accelerator sums counts, defers synchronisation and runs backward."""
    from accelerate.utils import DistributedType

    deepspeed = accelerator.distributed_type == DistributedType.DEEPSPEED
    if accelerator.num_processes == 1 and not deepspeed:
        return ALONE

    def total(count: Count) -> Count:
        # counted in float64: in float32 a step of more than sixteen million tokens would not be counted exactly
        summed = accelerator.reduce(torch.as_tensor(count, dtype=torch.float64, device=accelerator.device), "sum")
        return int(summed) if summed.device.type == "cpu" else summed.float()

    @contextmanager
    def accumulate(model: torch.nn.Module, last: bool) -> Iterator[None]:
        accelerator.gradient_state._set_sync_gradients(last)
        if last or deepspeed:
            yield
        else:
            with accelerator.no_sync(model):
                yield

    def backward(loss: torch.Tensor) -> None:
        # DeepSpeed's engine would divide by its own accumulation, which is fixed at one here
        accelerator.backward(loss, scale_wrt_gas=False)

    return Ranks(accelerator.num_processes, total, accumulate, backward if deepspeed else torch.Tensor.backward)
