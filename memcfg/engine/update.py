"""One optimizer step as plain functions: `gradients` and `step`. Training, the canaries and the memory simulator all call
these and nothing else, so what is measured or proven is what trains.

The loss of a step is the sum over everything its micro-batches count (supervised targets, pairs) divided once by that
count over all micro-batches and ranks. It does not depend on how rows are batched, accumulated, padded or packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from memcfg.batch import Batch, Objective

Count = int | torch.Tensor
Contexts = Sequence[AbstractContextManager[Any]]


@dataclass(frozen=True)
class StepResult:
    """`loss`: float32 scalar, detached, on the model's device; on several ranks the mean over ranks is the step's loss.
    `count`: what it was divided by, over all micro-batches and ranks; with a count of zero the loss is zero."""

    loss: torch.Tensor
    count: Count
    parts: tuple[torch.Tensor, ...] = ()
    """What each micro-batch adds to the loss, where gradients were computed."""


@dataclass(frozen=True)
class Ranks:
    """What differs when several processes share a step. The default is one process.

    `total` sums a count over the processes. `accumulate(model, last)` is entered around each micro-batch: gradients are
    synchronised at the last one only. `backward` runs autograd from the scaled loss. Gradients are averaged over `size`
    processes by whoever synchronises them, which `gradients` makes up for."""

    size: int = 1
    total: Callable[[Count], Count] = lambda count: count
    accumulate: Callable[[torch.nn.Module, bool], AbstractContextManager[Any]] = lambda model, last: nullcontext()
    backward: Callable[[torch.Tensor], Any] = torch.Tensor.backward


ALONE = Ranks()


def gradients(
    model: torch.nn.Module,
    micro_batches: Sequence[Batch],
    objective: Objective,
    *,
    contexts: Contexts = (),
    denominator: Count | None = None,
    ranks: Ranks = ALONE,
) -> StepResult:
    """Add one step's gradients to the parameters and return its mean loss.

    `micro_batches` lie on the model's device. `denominator` is the count over all micro-batches and ranks where the
    caller knows it (it can be counted before the batches move, without waiting for the device)."""
    if denominator is None:
        denominator = ranks.total(counted(objective, micro_batches))
    scale = ranks.size / divisor(denominator)
    parts: list[torch.Tensor] = []
    for index, batch in enumerate(micro_batches, start=1):
        with ranks.accumulate(model, index == len(micro_batches)), entered(contexts):
            part = objective.loss_sum(model, batch) * scale
            ranks.backward(part)
        parts.append(part.detach())
    return result(parts, denominator)


def result(parts: Sequence[torch.Tensor], denominator: Count) -> StepResult:
    """A step's result from what its micro-batches add to the loss."""
    if not parts:
        raise ValueError("a step needs at least one micro-batch")
    return StepResult(reduce(torch.add, parts), denominator, tuple(parts))


def step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, max_grad_norm: float | None = None
) -> torch.Tensor:
    """Clip, update the parameters and clear their gradients. Returns the gradient norm before clipping.

    The norm is taken even where nothing is clipped, as it is logged."""
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm or float("inf"))
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


@torch.no_grad()
def mean_loss(
    model: torch.nn.Module,
    micro_batches: Iterable[Batch],
    objective: Objective,
    *,
    contexts: Contexts = (),
    ranks: Ranks = ALONE,
) -> StepResult:
    """The mean loss over micro-batches in eval mode, by the same objective as training; no gradients, nothing kept."""
    total: torch.Tensor | None = None
    count: Count = 0
    with evaluating(model):
        for batch in micro_batches:
            with entered(contexts):
                part = objective.loss_sum(model, batch)
            total = part if total is None else total + part
            count = count + objective.count(batch)
    if total is None:
        raise ValueError("an evaluation needs at least one micro-batch")
    count = ranks.total(count)
    return StepResult(total * (ranks.size / divisor(count)), count)


def counted(objective: Objective, micro_batches: Iterable[Batch]) -> Count:
    """What this process's micro-batches count, summed. A number wherever that costs no waiting for a device."""
    count: Count = sum((objective.count(b) for b in micro_batches), start=0)
    return int(count) if isinstance(count, torch.Tensor) and count.device.type == "cpu" else count


@contextmanager
def entered(contexts: Contexts) -> Iterator[None]:
    """All contexts entered in order."""
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


@contextmanager
def in_mode(model: torch.nn.Module, training: bool) -> Iterator[None]:
    """The model in train or in eval mode; afterwards in the mode it was in."""
    before = model.training
    _set_mode(model, training)
    try:
        yield
    finally:
        _set_mode(model, before)


def _set_mode(model: torch.nn.Module, training: bool) -> None:
    model.train(training)
    model.training = training  # DeepSpeed's engine tells the model that it holds, and keeps its own mode as it is


def evaluating(model: torch.nn.Module) -> AbstractContextManager[None]:
    """The model in eval mode; afterwards in the mode it was in."""
    return in_mode(model, False)


def divisor(count: Count) -> Any:
    """The count as a divisor: micro-batches without a target add nothing, and nothing divided by one is nothing."""
    return count.clamp(min=1) if isinstance(count, torch.Tensor) else max(count, 1)
