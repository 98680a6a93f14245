"""Which operations a selectively checkpointed layer keeps instead of computing them again: attention.

Attention's output is as small as the layer's input, and computing it again costs the more the longer the sequence is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from memcfg import simulated

KEPT = (
    "scaled_dot_product_flash", "scaled_dot_product_efficient", "scaled_dot_product_cudnn",
    "scaled_dot_product_fused", "flash_attn", "varlen_attn", "flash_attention",
)  # fmt: skip
"""Parts of the names of operations whose results are kept."""


class Selection:
    """Decides for each operation, and counts those kept and those of them that ran again all the same."""

    def __init__(self) -> None:
        self.kept = 0

    def contexts(self) -> Any:
        """What `torch.utils.checkpoint` enters around a layer's two computations."""
        both = create_selective_checkpoint_contexts(self._policy)
        return tuple(_told(context) for context in both) if simulated.simulating() else both

    def _policy(self, context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if not _keeps(operation):
            return CheckpointPolicy.PREFER_RECOMPUTE
        self.kept += not context.is_recompute
        return CheckpointPolicy.MUST_SAVE


@cache
def _keeps(operation: Any) -> bool:
    """Asked of every operation of a layer, so each is looked at once."""
    name = str(operation)
    return any(kept in name for kept in KEPT) and "backward" not in name


@contextmanager
def _told(context: Any) -> Iterator[None]:
    """The context, of which a simulation knows that each operation costs the host more within it."""
    with simulated.interpreted(), context:
        yield


def context_function(selection: Selection) -> Any:
    """As an argument of the checkpoint function; a partial, so that copies of a model share it."""
    return partial(Selection.contexts, selection)
