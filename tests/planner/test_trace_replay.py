"""Replaying births and deaths."""

from __future__ import annotations

import pytest

from memcfg.planner.allocator import MIB, Exceeded
from memcfg.planner.trace import Trace, alive, once_more, replay, requested, smallest_limit

pytestmark = pytest.mark.torch


def a_trace() -> Trace:
    """Weights, then a forward that leaves one tensor, then a backward with a larger one beside it."""
    trace = Trace()
    trace.mark(0, "load")
    trace.born(30 * MIB, "weights", "load", "load", 0.0)
    trace.mark(1, "forward")
    kept = trace.born(12 * MIB, "activations", "forward", "mm", 1.0)
    brief = trace.born(14 * MIB, "activations", "forward", "mm", 2.0)
    trace.died(brief, 3.0)
    trace.mark(1, "backward")
    last = trace.born(20 * MIB, "workspace", "backward", "mm", 4.0)
    trace.died(kept, 5.0)
    trace.died(last, 6.0)
    return trace


def test_peaks_of_phases_in_bytes_and_on_a_device() -> None:
    trace = a_trace()
    plain, device = requested(trace), replay(trace)
    assert plain.phases == {"load": 30 * MIB, "forward": 56 * MIB, "backward": 62 * MIB}
    assert device.phases == plain.phases
    assert (device.phase, device.step) == ("backward", 1)


def test_the_cached_block_that_does_not_fit_is_reserved_beside() -> None:
    assert replay(a_trace()).reserved == (30 + 12 + 14 + 20) * MIB


def test_the_smallest_limit_gives_cached_blocks_back() -> None:
    trace = a_trace()
    found = replay(trace)
    least = smallest_limit(trace, found, within=MIB)
    assert found.allocated <= least <= found.allocated + MIB
    with pytest.raises(Exceeded):
        replay(trace, limit=found.allocated - 2 * MIB)


def test_what_is_alive_at_the_peak() -> None:
    trace = a_trace()
    assert [birth.kind for birth in alive(trace, replay(trace).at)] == ["weights", "activations", "workspace"]


def test_the_step_after_the_last_one_ends_what_that_left_and_begins_its_own() -> None:
    trace = Trace()
    trace.mark(1, "forward")
    first = trace.born(12 * MIB, "inputs", "forward", "copy", 0.0)
    trace.mark(2, "forward")
    trace.died(first, 1.0)
    second = trace.born(12 * MIB, "inputs", "forward", "copy", 1.0)
    brief = trace.born(14 * MIB, "activations", "forward", "mm", 2.0)
    trace.died(brief, 3.0)
    beyond = len(trace.births)
    assert once_more(trace) == [-second, second + beyond, brief + beyond, -(brief + beyond)]
    assert replay(trace, again=once_more(trace)).reserved == (12 + 14) * MIB


def test_blocks_that_lie_differently_in_a_third_step_are_counted() -> None:
    """A small tensor made late in the first step cuts the block that the next step's large one would have taken."""
    trace = Trace()
    trace.mark(1, "forward")
    large = trace.born(40 * MIB, "activations", "forward", "mm", 0.0)
    trace.died(large, 1.0)
    trace.born(20 * MIB, "optimizer", "optimizer", "zeros", 2.0)
    assert replay(trace).reserved == 40 * MIB
    assert replay(trace, again=once_more(trace)).reserved == 80 * MIB
