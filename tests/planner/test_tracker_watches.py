"""What the dispatch mode sees, and that it changes nothing about it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from memcfg.planner import standins
from memcfg.planner.machine import CPU, named
from memcfg.planner.trace import requested
from memcfg.planner.tracker import Tracker
from memcfg.testing import PeakMemory

pytestmark = pytest.mark.torch

CALLS: list[tuple[str, Any]] = [
    ("where labels are", lambda x: (x != 3).nonzero()),
    ("a view written in place", lambda x: _cleared(x).nonzero()),
    ("through a scalar", lambda x: torch.arange(int(x.max()), device=x.device)),
    ("cumulative", lambda x: torch.zeros(int(x.cumsum(0)[-1]), device=x.device)),
]


def _cleared(x: torch.Tensor) -> torch.Tensor:
    chosen = x != 3
    chosen[:2] = False
    return chosen


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_values_of_integers_are_known_without_storage(name: str, call: Any) -> None:
    real = torch.tensor([1, 3, 2, 4, 3])
    with Tracker(CPU):
        assert call(real.to("meta")).shape == call(real).shape


def test_what_unknown_values_overwrite_is_forgotten() -> None:
    with Tracker(CPU) as tracker:
        known = torch.arange(4, device="meta")
        known.index_copy_(0, torch.arange(4, device="meta"), torch.empty(1 << 23, dtype=torch.long, device="meta")[:4])
        assert tracker.values.of(known) is None


def test_births_and_deaths_follow_storages_not_tensors() -> None:
    with Tracker(CPU) as tracker:
        x = torch.empty(100, device="meta")
        view = x[10:]
        del x
        assert len(tracker.trace.events) == 1
        del view
    assert tracker.trace.events == [1, -1]


def test_what_is_made_on_the_host_and_moved_is_on_the_device() -> None:
    """As optimizers do that make a state with `torch.zeros(shape).to(gradient)`."""
    with Tracker(CPU) as tracker:
        moved = torch.zeros(1 << 17).to(torch.empty(1, device="meta", dtype=torch.bfloat16))
        assert moved.is_meta
        assert tracker.trace.births[-1].size == 2 << 17
    assert tracker.host.peak == 4 << 17


def peak_of_backward(build: Any) -> int:
    """Bytes at the highest point of a graph's backward, over what is there before."""
    with Tracker(CPU) as tracker:
        loss, held = build("meta")
        before = sum(tracker.trace.births[e - 1].size for e in tracker.trace.events if e > 0) - sum(
            tracker.trace.births[-e - 1].size for e in tracker.trace.events if e < 0
        )
        tracker.enter(1, "backward")
        loss.backward()
        peak = requested(tracker.trace).phases["backward"]
        tracker.watching = False
        del held
    return peak - before


def shared_input(device: str) -> Any:
    """One tensor read twice: autograd sums two gradients of 4 kB, in place if nobody watches."""
    weight = torch.ones(1000, device=device, requires_grad=True)
    return (weight * 2).sum() + (weight * 3).sum(), weight


def gathered(device: str) -> Any:
    """A gather: its backward adds to zeros that only autograd holds."""
    weight = torch.ones(1000, device=device, requires_grad=True)
    index = torch.arange(10, device=device)
    return weight.gather(0, index).sum(), weight


@pytest.mark.parametrize("build", [shared_input, gathered])
def test_gradients_are_summed_in_place_as_without_a_mode(build: Any) -> None:
    loss, held = build("cpu")
    with PeakMemory() as peak:
        loss.backward()
    assert peak_of_backward(build) == pytest.approx(peak.bytes, abs=64), held


def test_a_gradient_that_somebody_else_holds_is_not_summed_in_place() -> None:
    kept: list[torch.Tensor] = []

    def build(device: str) -> Any:
        weight = torch.ones(1000, device=device, requires_grad=True)
        first, second = weight * 2, weight * 3
        doubled = first + second
        doubled.register_hook(kept.append)
        return doubled.sum(), weight

    peak_of_backward(build)
    assert kept[0].shape == (1000,)


def test_cublas_takes_one_workspace_for_each_thread() -> None:
    with Tracker(named("h200")) as tracker:
        tracker.enter(1, "forward")
        weight = torch.ones(4, 4, device="meta", requires_grad=True)
        loss = (weight @ weight @ weight).sum()
        tracker.enter(1, "backward")
        loss.backward()
    sizes = [birth.size for birth in tracker.trace.births if birth.op == "cublas"]
    assert sizes == [32 << 20, 32 << 20]


@pytest.mark.parametrize(("machine", "kept"), [("h200", [4 << 20, 1 << 20]), (None, [4 << 20, 4 << 20])])
def test_dropout_keeps_a_byte_for_each_element_on_a_gpu(machine: str | None, kept: list[int]) -> None:
    """Its result and what it was multiplied with, of a million float32."""
    place = CPU if machine is None else named(machine)
    x = torch.empty(1 << 20, device="meta", requires_grad=True)
    with standins.in_place(standins.of_torch(place)), Tracker(place) as tracker:
        dropped = torch.nn.functional.dropout(x, 0.1)
        alive = [birth.size for birth in tracker.trace.births]
        assert sorted(alive, reverse=True) == kept
        del dropped
        assert torch.nn.functional.dropout(x, 0.1, training=False) is x
        assert torch.nn.functional.dropout(x, 0.0) is x
