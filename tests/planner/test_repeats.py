"""What repeats is run a few times and told again: the trace is the same to the last event and the last microsecond."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from memcfg import simulated
from memcfg.plan import Plan
from memcfg.planner.hosts import machine_of
from memcfg.planner.machine import named
from memcfg.planner.simulate import record
from memcfg.planner.trace import Trace
from memcfg.planner.tracker import Tracker
from memcfg.registry import Registry

pytestmark = pytest.mark.torch


def every_one(items: Any, alike: Any) -> Iterator[Any]:
    return iter(items)


TILED = ("mlp.mode=tiled", "assume.device=h100", "model.dtype=bfloat16", "attention=sdpa")
CASES = [
    # pieces of each sequence, and what else is asked for; 96 tokens, so that some last pieces are shorter
    ("mlp.tiles=11", "model.layers=2"),
    ("mlp.tiles=8", "model.layers=1", "checkpointing=none", "peft=lora"),
]


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_a_simulation_that_tells_again_is_the_one_that_runs_all(
    words: tuple[str, ...], planned: Callable[..., Plan], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(*TILED, *words)
    told = record(plan, registry.hooks(plan), machine_of(plan))
    monkeypatch.setattr(simulated, "repeated", every_one)
    run = record(plan, registry.hooks(plan), machine_of(plan))
    assert told.trace == run.trace
    assert (told.ended, told.host_bytes) == (run.ended, run.host_bytes)


def loop(items: list[int], body: Callable[[int], object]) -> tuple[list[int], Trace]:
    """The items that were run, and what the trace saw of all."""
    seen = []
    with Tracker(named("h100")) as tracker, simulated.listening(tracker):
        for item in simulated.repeated(items, lambda item: item):
            seen.append(item)
            body(item)
    return seen, tracker.trace


def test_of_equal_rounds_few_are_run_and_all_are_told() -> None:
    seen, trace = loop([8] * 20 + [3], lambda size: torch.empty(size, device="meta").mul(2.0))
    assert seen[-1] == 3
    assert len(seen) < 6
    assert len(trace.births) == 2 * 21
    assert sorted(-event for event in trace.events if event < 0) == list(range(1, 43))


NOT_ALIKE: list[tuple[str, Callable[[list[Any], int], object]]] = [
    # given a list that outlives the loop; why no round may be told again
    ("each leaves something", lambda kept, n: kept.append(torch.empty(8, device="meta"))),
    ("each is larger", lambda kept, n: kept.append(0) or torch.empty(len(kept), device="meta")),
    ("a copy to the host", lambda kept, n: torch.empty(8, device="meta").to("cpu")),
    ("a copy beside", lambda kept, n: simulated.copied(8)),
    ("a name for what was there", lambda kept, n: simulated.named(torch.empty(8, device="meta"), "cache")),
]


@pytest.mark.parametrize(("why", "body"), NOT_ALIKE, ids=[why for why, _ in NOT_ALIKE])
def test_what_cannot_be_told_again_is_run(why: str, body: Callable[[list[Any], int], object]) -> None:
    kept: list[Any] = []
    seen, _ = loop([1] * 9, lambda n: body(kept, n))
    assert seen == [1] * 9


def test_outside_a_simulation_all_are_run() -> None:
    assert list(simulated.repeated(range(9), lambda item: 0)) == list(range(9))
