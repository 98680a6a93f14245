"""One rank's view of a model whose weights, gradients and optimizer states are shards.

The simulated model is whole; what is told to the trace is what a rank would hold of it. Weights are born as shards. A unit
(modules that are gathered together) is gathered before its forward and, unless it is kept, again before its backward; its
gradients are whole until they are summed over ranks, and shards from then on. What the optimizer makes is as large as its shards.

The order of events is that of torch's `fully_shard` (torch/distributed/fsdp/_fully_shard, 2.11 to 2.13): the gathered bytes arrive
in a buffer and are copied into the unit's weights; forward, the buffer goes when the next unit's has arrived or the model's
forward ends; backward, the gather of the unit that ran before is begun while this one computes, and the buffer of a sum over
ranks goes when the next sum is begun."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from memcfg.planner.values import tensors
from memcfg.simulated import RankView, Together

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
    """Weights that are gathered together, their shards' padding too. `weights` and `buffer` are numbers of storages in the trace:
    the gathered weights, and what has arrived and is not copied out yet. `kept`: gathered once for forward and backward."""

    def __init__(
        self, modules: Sequence[torch.nn.Module], parameters: Sequence[Parameter], world: int, kept: bool
    ) -> None:
        self.modules, self.parameters, self.kept = list(modules), list(parameters), kept
        self.sizes = [world * shard_bytes(p, world) for p in self.parameters]
        self.trained = [p for p in self.parameters if p.requires_grad]
        self.weights: list[int] = []
        self.buffer: int | None = None
        self.stage = "idle"
        self.backward = False
        """Whether its backward has begun: a forward is then one that checkpointing computes again."""
        self.to_run: set[torch.nn.Module] = set()
        self.places: list[int] = []
        """Where in the order of forwards it ran."""


class Shards:
    """Tells the tracker what a rank would allocate beside what the whole model shows. `final`: whether the micro-batch at work
    is the step's last one, at which gradients are summed over ranks."""

    def __init__(self, view: RankView, tracker: Tracker, model: torch.nn.Module) -> None:
        assert view.units is not None
        self.world, self.tracker, self.final = view.world, tracker, True
        self._arrived: int | None = None
        self._sum: int | None = None
        self._gradients: list[int] = []
        self._order: list[Unit] = []
        self.units = units_of(view, model)
        for unit in self.units:
            for module in unit.modules:
                module.register_forward_pre_hook(partial(self._before, unit), prepend=True, with_kwargs=True)
                module.register_forward_hook(partial(self._after, unit))
        model.register_forward_hook(self._through)
        output = getattr(model, "get_output_embeddings", lambda: None)()
        self._alone = next((unit for unit in self.units if unit.modules == [output]), None)

    # ------------------------------------------------------------------------------------------------- forward

    @contextmanager
    def micro_batch(self, final: bool) -> Iterator[None]:
        """Around one micro-batch."""
        self.final = final
        yield
        for unit in self.units:
            if unit.stage != "post_backward":
                self._after_backward(unit)  # nothing that it was given has a gradient
            self._end(unit.buffer)
            unit.buffer, unit.stage, unit.backward = None, "idle", False
            unit.to_run.clear()
            unit.places.clear()
        self._order.clear()
        self._end(self._sum)
        self._sum = None

    @contextmanager
    def head(self) -> Iterator[None]:
        """Around what a head computes with weights that no forward gathers: it gathers them by itself."""
        unit = self._alone
        whole = None if unit is None or unit.weights else self._born(sum(unit.sizes), "all_gather")
        yield
        self._end(whole)

    def _before(self, unit: Unit, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if len(unit.modules) > 1:
            if unit.to_run:
                return None
            unit.to_run.update(unit.modules)
        if unit.backward:
            self._gather(unit)
            return None
        unit.stage = "forward"
        self._gather(unit)
        return self._watched(unit, args, kwargs)

    def _after(self, unit: Unit, module: torch.nn.Module, args: Any, out: Any) -> None:
        unit.to_run.discard(module)
        if unit.to_run or unit.backward:
            return
        if torch._C._current_graph_task_id() == -1:  # no checkpoint inside a backward
            if not unit.kept:
                self._let_go(unit)
            unit.places.append(len(self._order))
            self._order.append(unit)
        unit.stage = "idle"
        if torch.is_grad_enabled():
            for tensor in tensors(out):
                if tensor.requires_grad:
                    tensor.register_hook(partial(self._before_backward, unit))

    def _through(self, *_: Any) -> None:
        self._end(self._arrived)
        self._arrived = None

    def _ask(self, unit: Unit) -> None:
        """Begin a gather."""
        if unit.buffer is None and not unit.weights:
            unit.buffer = self._born(sum(unit.sizes), "all_gather")

    def _gather(self, unit: Unit) -> None:
        """Gather, and copy what has arrived into the weights. Forward its buffer stays until the next one has arrived."""
        self._ask(unit)
        if unit.buffer is None:
            return
        forward = unit.stage == "forward"
        if forward:
            self._through()
        unit.weights = [n for n in (self._born(size, "copy_out") for size in unit.sizes) if n is not None]
        if forward:
            self._arrived = unit.buffer
        else:
            self._end(unit.buffer)
        unit.buffer = None

    def _let_go(self, unit: Unit) -> None:
        for number in unit.weights:
            self._end(number)
        unit.weights = []

    # ------------------------------------------------------------------------------------------------ backward

    def _watched(self, unit: Unit, args: Any, kwargs: Any) -> Any:
        """What a forward is given, such that it is known when the gradients of that are there."""
        flat, spec = tree_flatten((args, kwargs))
        at = [i for i, value in enumerate(flat) if isinstance(value, torch.Tensor) and value.requires_grad]
        if not at or not torch.is_grad_enabled():
            return None
        passed = _Passed.apply(partial(self._after_backward, unit), *[flat[i] for i in at])
        for i, value in zip(at, passed, strict=True):
            flat[i] = value
        return tree_unflatten(flat, spec)

    def _before_backward(self, unit: Unit, *_: Any) -> None:
        """The unit's backward begins: it is gathered, and the one that ran before it is on its way."""
        unit.backward = True
        if unit.stage == "pre_backward":
            return
        unit.stage = "pre_backward"
        self._gather(unit)
        if unit.places and (at := unit.places.pop()):
            self._ask(self._order[at - 1])

    def _after_backward(self, unit: Unit) -> None:
        """Its gradients are whole: it is let go, and where the step ends they are summed over ranks."""
        unit.stage = "post_backward"
        self._let_go(unit)
        gradients = [p for p in unit.trained if p.grad is not None]
        if not self.final or not gradients:
            return
        size = sum(shard_bytes(p.grad, self.world) for p in gradients if p.grad is not None)
        self._end(self._sum)
        self._sum = self._born(self.world * size, "reduce_scatter")
        for parameter in gradients:
            parameter.grad = None
        self._gradients.append(self.tracker.told(size, "gradients", "reduce_scatter"))

    # ----------------------------------------------------------------------------------------------- optimizer

    @contextmanager
    def optimizer(self) -> Iterator[None]:
        """Around the update: gradients are there again, uncounted, and what is made is as large as the shards are."""
        self.tracker.watching = False
        for parameter in (p for unit in self.units for p in unit.trained):
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


class _Passed(torch.autograd.Function):
    """Hands tensors on, and calls back when their gradients are there."""

    @staticmethod
    def forward(ctx: Any, call: Any, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.call = call
        return given

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.call()
        return (None, *gradients)


def units_of(view: RankView, model: torch.nn.Module) -> list[Unit]:
    """The units in the order of the model's modules, what belongs to none first. A weight belongs to the first that has it."""
    assert view.units is not None
    taken: set[int] = set()
    units = []
    for together in (*view.units(model), Together((model,), kept=True)):
        own = {id(p): p for module in together.modules for p in module.parameters() if id(p) not in taken}
        taken |= own.keys()
        if own:
            units.append(Unit(together.modules, list(own.values()), view.world, together.kept))
    places = {module: place for place, module in enumerate(model.modules())}
    return sorted(units, key=lambda unit: min(places[module] for module in unit.modules))


def buckets(model: torch.nn.Module, tracker: Tracker) -> None:
    """The buckets that replicas average their gradients in: as large as the gradients, there from the start."""
    size = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    if size:
        tracker.told(size, "gradients", "buckets")
