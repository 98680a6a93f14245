"""A plan in, a `Prediction` out: the engine's own `build`, `gradients` and `step`, on tensors without storage."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from memcfg.arriving import held
from memcfg.engine.build import Run, build
from memcfg.engine.forward import attach_head
from memcfg.engine.update import Ranks, counted, gradients, step
from memcfg.planner import online, standins
from memcfg.planner.batches import Lengths, Tokenizer, micro_batches
from memcfg.planner.depth import depth, positions, short, shorten
from memcfg.planner.hosts import machine_of
from memcfg.planner.machine import Machine
from memcfg.planner.prediction import Prediction
from memcfg.planner.sharding import Shards, buckets, shard_bytes
from memcfg.planner.summary import summarised
from memcfg.planner.trace import Trace
from memcfg.planner.tracker import Tracker, whole_bytes
from memcfg.planner.values import tensors
from memcfg.signals import noted
from memcfg.simulated import RANK_VIEW, RankView, listening

if TYPE_CHECKING:
    from memcfg.batch import Batch
    from memcfg.plan import Plan
    from memcfg.registry.hooks import Hooks

STEPS: Final = 2
"""The first step makes the optimizer's states; the second has them while gradients are computed."""

MICRO_BATCHES: Final = 3
"""From the second micro-batch on nothing changes: gradients are there, and are added to."""

OUTLINED_BATCHES: Final = 2
"""Of an outline, which asks for no more than what is in use: the third only shows how blocks come to lie."""


def simulate(plan: Plan, hooks: Hooks, *, machine: Machine | None = None, lengths: Lengths | None = None) -> Prediction:
    """What one process of this plan would use on `machine` (the plan's own by default).

    `lengths`: the documents of each row of a micro-batch, by default rows as long as the plan allows; of a trainer that samples
    prompt and completion of each completion that is sampled at a time. Needs no GPU, no weights and no data. Raises what
    `build` raises, and `RequestError` for a plan without a longest row."""
    began = time.process_time()
    machine = machine or machine_of(plan)
    recorded = record(plan, hooks, machine, lengths)
    return summarised(plan, machine, recorded, time.process_time() - began)


class Recorded:
    """A simulated run: its trace, and what is to be told beside it. `steps`: how many steps a round of sampling serves;
    `assumed`: what was taken for the sizes that no option states."""

    def __init__(
        self, tracker: Tracker, run: Run, feed: Feed, began: list[float], taken: int, view: RankView | None
    ) -> None:
        self.trace: Trace = tracker.trace
        self.host_bytes = tracker.host.peak
        self.step_began = began
        self.ended = tracker.clock.ms
        self.parameters = sum(p.numel() for p in run.model.parameters())
        self.trained = sum(p.numel() for p in run.model.parameters() if p.requires_grad)
        self.tokens = sum(b.input_ids.numel() for b in feed.step)
        self.micro_batches, self.taken = len(feed.step), min(len(feed.step), taken)
        self.steps, self.assumed = feed.steps, feed.assumed
        self.unforeseen = view.unforeseen if view else 0.0
        self.layers, self.positions = depth(run.model), positions(run.model)


class Feed(Protocol):
    """Where a simulated step's micro-batches come from: `step` holds the last one's. `assumed` says what was taken for the sizes
    that no option states; a round of sampling serves `steps` steps."""

    step: list[Batch]
    steps: int
    assumed: tuple[str, ...]

    def fresh(self, number: int) -> list[Batch]:
        """The micro-batches of step `number`, on the CPU."""
        ...


class Given:
    """The same micro-batches in every step."""

    def __init__(self, batches: list[Batch]) -> None:
        self.step, self.steps = batches, 1
        self.assumed: tuple[str, ...] = ()

    def fresh(self, number: int) -> list[Batch]:
        return self.step


def record(
    plan: Plan, hooks: Hooks, machine: Machine, lengths: Lengths | None = None, *, layers: int | None = None
) -> Recorded:  # fmt: skip
    """Build and take two steps under the tracker; with a model of only so many `layers` where that is given, and then with
    less in between, and of the first step only what it leaves."""
    tracker = Tracker(machine, whole=layers is None)
    stand_ins = hooks.simulation(plan=plan, stands_in={})
    places = standins.of_torch(machine) | {k: v for k, v in stand_ins.items() if ":" in k}
    view: RankView | None = stand_ins.get(RANK_VIEW)
    watched: Any = Watched(hooks, tracker, layers, view)
    with noted() as tracker.interrupts, _undisturbed(), standins.in_place(places), tracker, listening(tracker):
        tracker.enter(0, "load")
        run = build(plan, watched, device="meta", data=False)
        shards = _shared(view, tracker, run.model)
        attach_head(run.model, Phased(run.head, tracker, shards))
        tracker.watching = False
        feed = _feed(run, tracker, stand_ins, lengths)
        tracker.watching = True
        taken = MICRO_BATCHES if tracker.whole else OUTLINED_BATCHES
        began, alone = [], shards is None and not tracker.whole and _updated_alone(run.model, feed)
        for number in range(1, STEPS + 1):
            if alone and number < STEPS:
                began.append(_update(run, tracker, number))
            else:
                began.append(_step(run, feed, tracker, number, shards, taken))
        recorded = Recorded(tracker, run, feed, began, taken, view)
        tracker.watching = False
    return recorded


def _feed(run: Run, tracker: Tracker, stand_ins: dict[str, Any], lengths: Lengths | None) -> Feed:
    """What the steps are made of. Raises `RequestError` for a plan without a longest row."""
    sampled = online.sampled(run, tracker, stand_ins, lengths)
    if sampled is not None:
        return sampled
    return Given(micro_batches(run.plan, run.hooks, run.tokenizer, run.layout, stand_ins, lengths))


def _shared(view: RankView | None, tracker: Tracker, model: torch.nn.Module) -> Shards | None:
    """What one of several processes holds beside what the model shows."""
    if view is None:
        return None
    if view.units is not None:
        return Shards(view, tracker, model)
    buckets(model, tracker)
    return None


def _updated_alone(model: torch.nn.Module, feed: Feed) -> bool:
    """Whether nobody waits for gradients as they come (an optimizer within the backward pass), and no round of sampling
    begins while the device is still at the step before it."""
    return isinstance(feed, Given) and not any(p._post_accumulate_grad_hooks for p in model.parameters())


def _update(run: Run, tracker: Tracker, number: int) -> float:
    """Of a step the end alone, which leaves the optimizer's states: its gradients are there without having been computed.
    Returns when it began."""
    began = tracker.clock.ms
    tracker.enter(number, "backward")
    for parameter in run.model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter, requires_grad=False)
    _updated(run, tracker, number, nullcontext())
    return began


def _step(run: Run, feed: Feed, tracker: Tracker, number: int, shards: Shards | None, taken: int) -> float:
    """One optimizer step, as training takes it, of at most `taken` micro-batches. Returns when it began."""
    began = tracker.clock.ms
    tracker.fine = number == STEPS and tracker.whole
    run.model.train()
    batches = feed.fresh(number)
    tracker.clock.documents = batches[0].lengths
    count = counted(run.objective, batches)
    tracker.enter(number, "input")
    placed = [batch.to("meta") for batch in batches]
    ranks = Ranks(accumulate=_forward(tracker, number, shards), backward=_backward(tracker, number))
    gradients(
        run.model, placed[:taken], run.objective, contexts=run.contexts, denominator=count, ranks=ranks
    )  # fmt: skip
    _updated(run, tracker, number, nullcontext() if shards is None else shards.optimizer())
    return began


def _updated(run: Run, tracker: Tracker, number: int, around: AbstractContextManager[Any]) -> None:
    """The update of a step whose gradients are there."""
    for parameter in run.model.parameters():
        if parameter.grad is not None:
            tracker.name(parameter.grad, "gradients")
    tracker.enter(number, "optimizer")
    with around:
        step(run.model, run.optimizer, max_grad_norm=run.plan.get("run.max_grad_norm"))
    for state in run.optimizer.state.values():
        for tensor in tensors(list(state.values()) if isinstance(state, dict) else []):
            tracker.name(tensor, "optimizer")


def _forward(tracker: Tracker, number: int, shards: Shards | None) -> Any:
    @contextmanager
    def accumulate(model: torch.nn.Module, last: bool) -> Iterator[None]:
        tracker.enter(number, "forward")
        with nullcontext() if shards is None else shards.micro_batch(last):
            yield

    return accumulate


def _backward(tracker: Tracker, number: int) -> Any:
    def backward(loss: torch.Tensor) -> None:
        tracker.enter(number, "backward")
        loss.backward()

    return backward


class Phased:
    """A head that says when it is at work."""

    def __init__(self, head: Any, tracker: Tracker, shards: Shards | None) -> None:
        self._head, self._tracker = head, tracker
        self._whole: Callable[[], AbstractContextManager[None]] = nullcontext if shards is None else shards.head

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._head, name)
        return self._telling(found) if name in ("loss_sum", "logprobs") else found

    def _telling(self, call: Any) -> Any:
        def told(*args: Any, **kwargs: Any) -> Any:
            tracker = self._tracker
            before, number = tracker.phase, tracker.trace.marks[-1][1]
            if before == "forward":
                tracker.enter(number, "loss")
            try:
                with self._whole():
                    return call(*args, **kwargs)
            finally:
                if before == "forward":
                    tracker.enter(number, before)

        return told


class Watched:
    """The hooks of a plan, with the model's load told as a device sees it: weights arrive one after the other, those of a model that is
    held when it is patched."""

    def __init__(
        self, hooks: Hooks, tracker: Tracker, layers: int | None = None, view: RankView | None = None
    ) -> None:  # fmt: skip
        self._hooks, self._tracker, self._layers = hooks, tracker, layers
        self._world = view.world if view is not None and view.units is not None else 1
        self._policy = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hooks, name)

    def load_tokenizer(self, **arguments: Any) -> Any:
        return Tokenizer(lambda: self._hooks.load_tokenizer(**arguments))

    def load_model(self, **arguments: Any) -> Any:
        self._tracker.watching = False
        try:
            with short(self._layers):
                model = self._hooks.load_model(**arguments)
            if self._layers is not None:
                shorten(model, self._layers)
        finally:
            self._tracker.watching = True
        if not held(model):
            arrive(model, self._tracker, self._world if self._policy else 1)
        return model

    def patch_model(self, **arguments: Any) -> Any:
        """What is put into a model that will be sharded (adapters) is made where it was loaded, and arrives in shards with it. A
        model that is loaded beside the trained one is whole."""
        world, self._policy = self._world if self._policy else 1, False
        if world == 1:
            return self._hooks.patch_model(**arguments)
        self._tracker.watching = False
        try:
            model = self._hooks.patch_model(**arguments)
        finally:
            self._tracker.watching = True
        arrive(model, self._tracker, world)
        return model


def arrive(model: torch.nn.Module, tracker: Tracker, world: int = 1) -> None:
    """The births of a model's weights (shards for each of `world` processes) and buffers, in the order in which
    `Module.to` moves them."""
    for child in model.children():
        arrive(child, tracker, world)
    with tracker.sized(whole_bytes if world == 1 else partial(shard_bytes, world=world)):
        for parameter in model._parameters.values():
            if parameter is not None:
                tracker.see(parameter, "load")
    for buffer in model._buffers.values():
        if buffer is not None:
            tracker.see(buffer, "load")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage collection: a death must come when its last reference goes, not later. Random states stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        if enabled:
            gc.enable()
