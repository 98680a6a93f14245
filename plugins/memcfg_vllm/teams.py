"""Processes of the run whose GPUs make one vLLM engine, and what processes tell one another around it.

Of `vllm.tensor_parallel=N`, N neighbours are a team: each samples for its own prompts as far as the run knows, and all of them
hand the same list, everybody's prompts in the order of ranks, to their part of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from memcfg import Away, Problem, RunError

T = TypeVar("T")


class Team:
    """`size` processes, this one at `place`. `group`: torch's process group of them, None for one process."""

    def __init__(self, size: int = 1, place: int = 0, group: Any = None) -> None:
        self.size, self.place, self._group = size, place, group

    @classmethod
    def of(cls, size: int) -> Team:
        """This process's team of `size`. Every process of the run must call it."""
        if size == 1:
            return cls()
        import torch.distributed as dist

        rank, found = dist.get_rank(), None
        for first in range(0, dist.get_world_size(), size):
            members = list(range(first, first + size))
            group = dist.new_group(members, backend="gloo")  # prompts are plain data, which lies on no GPU
            found = group if rank in members else found
        return cls(size, rank % size, found)

    def joined(self, own: Sequence[T]) -> tuple[list[T], slice]:
        """What all members gave, in order, and where this one's own lies in it. Plain data only."""
        if self.size == 1:
            return list(own), slice(0, len(own))
        import torch.distributed as dist

        shares: list[Any] = [None] * self.size
        dist.all_gather_object(shares, list(own), group=self._group)
        begin = sum(len(share) for share in shares[: self.place])
        return [each for share in shares for each in share], slice(begin, begin + len(own))


def several() -> bool:
    """Whether the run has other processes."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def met() -> None:
    """Go on once every process of the run has come here."""
    if several():
        import torch.distributed as dist

        dist.barrier()


def agreed(work: Callable[[], None], *, first: bool) -> None:
    """The first process's work; where it fails, all processes raise what it raised. None goes on before it is done."""
    everywhere(work if first else lambda: None)


def everywhere(work: Callable[[], T]) -> T:
    """Each process's own work; where one fails, all raise what it raised (of several, the first's), so that none waits for
    another that has left. What is no `RunError` is raised where it was, and told by the others. None goes on before all are done."""
    if not several():
        return work()
    import torch.distributed as dist

    made, told, own = None, None, None
    try:
        made = work()
    except RunError as error:
        told = (type(error), error.problems)
    except Exception as error:
        text = " ".join(str(error).split()) or "it says no more"
        told = (RunError, (Problem(f"process {dist.get_rank()} ended with {type(error).__name__}: {text}"),))
        own = error
    troubles: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(troubles, told)
    if own is not None:
        raise own
    for kind, problems in filter(None, troubles):
        raised = kind(*problems)
        if isinstance(raised, Away):
            raised.everywhere = True
        raise raised
    return made  # type: ignore[return-value]
