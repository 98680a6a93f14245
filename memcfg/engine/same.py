"""Before the first step: every process holds the same rows and the same weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memcfg.engine.joining import Group
from memcfg.errors import Problem, RunError

if TYPE_CHECKING:
    from memcfg.engine.build import Run

SAMPLED = 256
"""Numbers of each parameter that are looked at."""


def same_start(run: Run, group: Group) -> None:
    """Raise `RunError`, in every process, where one has other rows or other weights than the first.

    Nobody would notice later: each would deal itself other rows, and shards of different models make one of neither."""
    if group.size == 1:
        return
    for key, mine in (("data.source", rows_of(run)), ("model.source", weights_of(run.model))):
        found = group.all(mine)
        for rank, theirs in enumerate(found):
            if theirs != found[0]:
                first, other = next(pair for pair in zip(found[0], theirs, strict=False) if pair[0] != pair[1])
                text = (
                    f"process {rank} does not start as process 0 does: {other[0]} is {other[1]}, and there {first[1]}"
                )
                raise RunError(Problem(text, key=key))


def rows_of(run: Run) -> list[tuple[str, Any]]:
    """Counts of the prepared rows, and a few of them."""
    splits = {"training rows": run.train, "held-out rows": run.eval}
    counted = [(name, len(rows)) for name, rows in splits.items() if hasattr(rows, "__len__")]
    shown = [
        (f"the last of the {name}", str(rows[len(rows) - 1]))
        for name, rows in splits.items()
        if hasattr(rows, "__len__")
    ]
    tokens = [("the number of tokens kept", run.ledger.tokens_kept)]
    return [*counted, *tokens, *shown]


def weights_of(model: torch.nn.Module) -> list[tuple[str, Any]]:
    """A number for each parameter, made of a few of its values."""
    return [(f"`{name}`", _sample(parameter)) for name, parameter in model.named_parameters()]


def _sample(parameter: torch.Tensor) -> int:
    """A number made of the bits of some values: packed weights are no numbers."""
    flat = parameter.detach().reshape(-1)
    bits = flat[:: max(1, len(flat) // SAMPLED)].cpu().contiguous().view(torch.uint8).long()
    return int((bits * torch.arange(1, len(bits) + 1)).sum())
