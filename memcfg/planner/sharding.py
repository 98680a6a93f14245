"""One rank's view of a model whose weights, gradients and optimizer states are shards.

The simulated model is whole; what is told to the trace is what a rank would hold of it. Weights are born as shards. A unit (a
layer, or all that is in none) is gathered before its forward and again before its backward; its gradients are whole until
they are summed over ranks, and shards from then on. What the optimizer makes is as large as its shards.

The order of events is that of torch's `fully_shard` (torch/distributed/fsdp/_fully_shard, 2.11): the gathered bytes arrive in
a buffer and are copied into the unit's weights; forward, the buffer goes when the next unit's has arrived; backward, the
next unit's gather is begun while this one computes, and the buffer of a sum over ranks goes when the next sum is begun."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from memcfg.planner.values import tensors
from memcfg.simulated import RankView

if TYPE_CHECKING:
    from memcfg.planner.tracker import Tracker

Parameter = torch.nn.Parameter


def shard_bytes(tensor: torch.Tensor, world: int) -> int:
    """Bytes of one rank's shard: rows are dealt out, the last ranks' padded."""
    if not tensor.dim():
        return tensor.element_size()
    rows = -(-tensor.shape[0] // world)
    return rows * (tensor.numel() // max(1, tensor.shape[0])) * tensor.element_size()


class Unit:
    """Weights that are gathered together, their shards' padding too. `gathered` and `buffer` are numbers of storages in the
    trace."""

    def __init__(self, parameters: Sequence[Parameter], world: int) -> None:
        self.parameters = list(parameters)
        self.bytes = world * sum(shard_bytes(p, world) for p in self.parameters)
        self.trained = [p for p in self.parameters if p.requires_grad]
        self.gathered: int | None = None
        self.buffer: int | None = None
        self.waiting = 0


class Shards:
    """Tells the tracker what a rank would allocate beside what the whole model shows. `final`: whether the micro-batch at work
    is the step's last one, at which gradients are summed over ranks."""

    def __init__(self, view: RankView, tracker: Tracker, model: torch.nn.Module) -> None:
        self.world, self.tracker = view.world, tracker
        self.final = True
        self._buffer: int | None = None
        self._sum: int | None = None
        self._gradients: list[int] = []
        assert view.units is not None
        layers = list(view.units(model))
        inside = {id(p) for layer in layers for p in layer.parameters()}
        self.root = Unit([p for p in model.parameters() if id(p) not in inside], self.world)
        self.units = [Unit(list(layer.parameters()), self.world) for layer in layers]
        for layer, unit in zip(layers, self.units, strict=True):
            layer.register_forward_pre_hook(partial(self._before, unit))
            layer.register_forward_hook(partial(self._after, unit))
        for unit in (*self.units, self.root):
            for parameter in unit.trained:
                parameter.register_post_accumulate_grad_hook(partial(self._accumulated, unit))

    # ------------------------------------------------------------------------------------------------- forward

    @contextmanager
    def micro_batch(self, final: bool) -> Iterator[None]:
        """Around one micro-batch: what belongs to no unit is whole until its backward is through."""
        self.final = final
        for unit in (*self.units, self.root):
            unit.waiting = len(unit.trained)
        self._gather(self.root)
        yield
        if self.root.gathered is not None:
            self._let_go(self.root)
        for unit in self.units:
            self._let_go(unit)
        self._end_buffer()
        self._end_sum()

    def _before(self, unit: Unit, *_: Any) -> None:
        if unit.gathered is None:
            self._gather(unit)

    def _after(self, unit: Unit, module: Any, inputs: Any, out: Any) -> None:
        if self.tracker.phase == "backward":
            return  # computed again for its backward, for which it is there already
        self._let_go(unit)
        outputs = [t for t in tensors(out) if t.requires_grad]
        if outputs:
            torch.autograd.graph.register_multi_grad_hook(outputs, partial(self._backward, unit), mode="any")

    def _gather(self, unit: Unit) -> None:
        """The buffer of the gather before goes when this one has arrived."""
        arrived = unit.buffer if unit.buffer is not None else self._born(unit.bytes, "all_gather")
        unit.buffer = None
        self._end_buffer()
        unit.gathered = self._born(unit.bytes, "copy_out")
        if self.tracker.phase == "backward":
            self._end(arrived)
        else:
            self._buffer = arrived

    def _let_go(self, unit: Unit) -> None:
        for number in (unit.gathered, unit.buffer):
            self._end(number)
        unit.gathered = unit.buffer = None

    # ------------------------------------------------------------------------------------------------ backward

    def _backward(self, unit: Unit, *_: Any) -> None:
        """The unit's backward begins: it is gathered, and the one before it in the model is on its way."""
        at = self.units.index(unit)
        for later in self.units[at + 1 :]:
            self._let_go(later)  # frozen ones have no gradient that would say that they are through
        if unit.gathered is None:
            self._gather(unit)
        if at:
            self.units[at - 1].buffer = self._born(self.units[at - 1].bytes, "all_gather")

    def _accumulated(self, unit: Unit, parameter: Parameter) -> None:
        unit.waiting -= 1
        if unit.waiting == 0:
            if self.final:
                self._sum_over_ranks(unit)
            self._let_go(unit)

    def _sum_over_ranks(self, unit: Unit) -> None:
        shards = [shard_bytes(p.grad, self.world) for p in unit.trained if p.grad is not None]
        self._end_sum()
        self._sum = self._born(self.world * sum(shards), "reduce_scatter")
        for parameter in unit.trained:
            parameter.grad = None
        self._gradients += [self.tracker.told(size, "gradients", "reduce_scatter") for size in shards if size]

    # ----------------------------------------------------------------------------------------------- optimizer

    @contextmanager
    def optimizer(self) -> Iterator[None]:
        """Around the update: gradients are there again, uncounted, and what is made is as large as the shards are."""
        self.tracker.watching = False
        for unit in (*self.units, self.root):
            for parameter in unit.trained:
                parameter.grad = torch.empty_like(parameter)
        self.tracker.watching = True
        with self.tracker.sized(partial(shard_bytes, world=self.world)):
            yield
        for number in self._gradients:
            self.tracker.ended(number)
        self._gradients.clear()

    def _born(self, size: int, op: str) -> int | None:
        return self.tracker.told(size, "workspace", op) if size else None

    def _end(self, number: int | None) -> None:
        if number is not None:
            self.tracker.ended(number)

    def _end_buffer(self) -> None:
        self._end(self._buffer)
        self._buffer = None

    def _end_sum(self) -> None:
        self._end(self._sum)
        self._sum = None


def buckets(model: torch.nn.Module, tracker: Tracker) -> None:
    """The buckets that replicas average their gradients in: as large as the gradients, there from the start."""
    size = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    if size:
        tracker.told(size, "gradients", "buckets")
