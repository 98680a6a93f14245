"""Time on a second stream: a copy runs beside the computation, which waits only where it says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memcfg import simulated
from memcfg.planner.clock import Clock
from memcfg.planner.machine import named
from memcfg.planner.tracker import Tracker

pytestmark = pytest.mark.torch

SECOND = int(1e9)
"""Bytes that this machine copies in a second."""


def clock(device: float = 0.0) -> Clock:
    made = Clock(replace(named("h200"), host_copy=float(SECOND), launch=0.0))
    made.device = device
    return made


def test_copies_follow_one_another_and_begin_after_what_was_computed() -> None:
    made = clock(device=2.0)
    assert made.copy_beside(SECOND) == 3.0
    assert made.copy_beside(2 * SECOND) == 5.0
    assert made.device == 2.0, "the computation has not waited"


def test_the_computation_waits_until_a_copy_is_through_and_no_longer() -> None:
    made = clock(device=2.0)
    first = made.copy_beside(SECOND)
    made.device = 2.5
    made.wait(first)
    assert made.device == 3.0
    made.device = 9.0
    made.wait(first)
    assert made.device == 9.0


def test_a_technique_is_heard_only_while_a_simulation_listens() -> None:
    made = Tracker(replace(named("h200"), host_copy=float(SECOND), launch=0.0))
    assert simulated.copied(SECOND) is None
    simulated.awaited(None)
    with simulated.listening(made):
        until = simulated.copied(SECOND)
        simulated.awaited(until)
    assert (until, made.clock.device) == (1.0, 1.0)
    assert simulated.copied(SECOND) is None


def test_what_was_not_simulated_takes_its_time() -> None:
    made = Tracker(replace(named("h200"), host_copy=float(SECOND), launch=0.0))
    with simulated.listening(made):
        simulated.awaited(simulated.copied(SECOND))
        simulated.passed(2.5)
        assert simulated.now() == made.clock.now() == 3.5
    assert simulated.now() == 0.0
