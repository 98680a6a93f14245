"""`run.on_oom=shrink`: a micro-batch that does not fit is taken in halves, and so are those that follow.

Nothing is computed twice and nothing is kept for the case: what was accumulated stays. A backward pass that fails in the
middle has given some parameters their gradient and others not; autograd gives each of them all of it at once, so which is
known exactly (`Received`). When the halves are computed, the parameters that have theirs already get nothing more. The
sum is then what it would have been, but for rounding and for the draws of dropout.

Several processes (DDP) each do this by themselves: no forward or backward pass waits for another process, gradients are
averaged once all have ended. If one cannot go on, all stop; if one had to take halves, all do from the next step on."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from memcfg.engine.update import Contexts, Count, Ranks, StepResult, divisor, entered, result
from memcfg.errors import Problem, RunError

if TYPE_CHECKING:
    from memcfg.batch import Batch, Objective

BUCKET: Final = 1 << 25
"""Numbers that are averaged over processes at a time."""

Halves = Callable[["Batch"], "tuple[Batch, Batch] | None"]


@dataclass
class Piece:
    """Something left to compute, without the parameters that have their gradient from it."""

    batch: Batch
    done: frozenset[torch.nn.Parameter] = frozenset()


@dataclass
class Shrinking:
    """Computes steps, and remembers in how many `parts` micro-batches are taken. `halves` splits one on the host."""

    halves: Halves
    device: Any
    tell: Callable[[str], Any] = lambda text: None
    parts: int = 1
    times: int = field(default=0)
    """How often memory ran out."""

    def state_dict(self) -> dict[str, Any]:
        return {"parts": self.parts, "times": self.times}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.parts, self.times = state["parts"], state["times"]

    def gradients(
        self, model: torch.nn.Module, micro_batches: Sequence[Batch], objective: Objective, *, contexts: Contexts,
        denominator: Count, ranks: Ranks, step: int,
    ) -> StepResult:  # fmt: skip
        """As `memcfg.engine.update.gradients`, of micro-batches on the host. Raises `torch.OutOfMemoryError` where a single
        row does not fit, in every process."""
        refuse_unknown(micro_batches)
        scale = ranks.size / divisor(denominator)
        inner: Any = model.module if ranks.size > 1 else model
        queue = deque(Piece(part) for batch in micro_batches for part in self._pieces(batch, self.parts))
        seen: list[torch.Tensor] = []
        failed: str | None = None
        while queue and failed is None:
            piece = queue.popleft()
            part, received, error = self._one(inner, piece, objective, contexts, scale)
            if part is not None:
                seen.append(part)
            else:
                failed = self._shrunk(queue, piece, received, error, step)
        self._agree(failed, ranks)
        if ranks.size > 1:
            average([p for p in inner.parameters() if p.requires_grad], ranks.size)
        return result(seen, denominator)

    def _one(
        self, model: torch.nn.Module, piece: Piece, objective: Objective, contexts: Contexts, scale: Any
    ) -> tuple[torch.Tensor | None, frozenset[torch.nn.Parameter], str]:
        """What a piece adds to the loss; or None, which parameters have its gradient all the same, and the error."""
        with received(model, piece.done) as got:
            try:
                with entered(contexts):
                    part = objective.loss_sum(model, piece.batch.to(self.device)) * scale
                    part.backward()
                return part.detach(), frozenset(), ""
            except torch.OutOfMemoryError as error:
                return None, frozenset(got), str(error)

    def _shrunk(
        self, queue: deque[Piece], piece: Piece, got: frozenset[torch.nn.Parameter], error: str, step: int
    ) -> str | None:
        """Put halves in place of everything that is left; the error where a single row did not fit."""
        release(self.device)
        halves = self.halves(piece.batch)
        if halves is None:
            return error
        self.times, self.parts = self.times + 1, self.parts * 2
        rest = [Piece(part, other.done) for other in queue for part in self._pieces(other.batch, 2)]
        queue.clear()
        queue.extend([*(Piece(half, piece.done | got) for half in halves), *rest])
        rows = len(piece.batch.source.rows) if piece.batch.source else 0
        text = f"out of memory in step {step}: a micro-batch of {rows} rows is taken in halves, and so are those that follow"
        self.tell(text)
        return None

    def _pieces(self, batch: Batch, parts: int) -> list[Batch]:
        """The batch in so many parts, or as many as it has rows."""
        if parts < 2 or (halves := self.halves(batch)) is None:
            return [batch]
        return [part for half in halves for part in self._pieces(half, parts // 2)]

    def _agree(self, failed: str | None, ranks: Ranks) -> None:
        """Raise in every process if one failed; otherwise take as many parts as the process that needs most."""
        if ranks.size > 1:
            import torch.distributed as dist

            told = torch.tensor([float(failed is not None), float(self.parts)], device=self.device)
            dist.all_reduce(told, dist.ReduceOp.MAX)
            self.parts = int(told[1])
            if failed is None and told[0]:
                failed = "another process has too little memory for a single row"
        if failed is not None:
            raise torch.OutOfMemoryError(failed)


def refuse_unknown(micro_batches: Sequence[Batch]) -> None:
    """Raise `RunError` for micro-batches that nobody could take apart: those that were not made of prepared rows."""
    if any(batch.source is None for batch in micro_batches):
        text = "the micro-batches of this trainer are not made of prepared rows, and cannot be taken in halves"
        raise RunError(Problem(text, key="run.on_oom", fix="run.on_oom=stop"))


@contextmanager
def received(model: torch.nn.Module, done: frozenset[torch.nn.Parameter]) -> Iterator[set[torch.nn.Parameter]]:
    """The parameters that get their gradient in here. Those in `done` get none."""
    got: set[torch.nn.Parameter] = set()
    hooks = []
    for parameter in model.parameters():
        if parameter in done:
            hooks.append(parameter.register_hook(torch.zeros_like))
        elif parameter.requires_grad:
            hooks.append(parameter.register_post_accumulate_grad_hook(got.add))  # type: ignore[arg-type]
    try:
        yield got
    finally:
        for hook in hooks:
            hook.remove()


def release(device: Any) -> None:
    """Give back what a failed pass held."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()


def average(parameters: Sequence[torch.nn.Parameter], size: int) -> None:
    """Average gradients over all processes, as DDP would have. One that a process has none of counts as zero."""
    import torch.distributed as dist

    bucket: list[torch.Tensor] = []
    for index, parameter in enumerate(parameters):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        bucket.append(parameter.grad)
        following = parameters[index + 1] if index + 1 < len(parameters) else None
        full = sum(g.numel() for g in bucket) >= BUCKET
        if following is None or full or following.dtype != parameter.dtype:
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            flat /= size
            for gradient, mean in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                gradient.copy_(mean.view_as(gradient))
            bucket = []
