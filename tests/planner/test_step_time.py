"""How long a simulated step takes: what a kernel needs, and when the host and the device wait for one another."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memcfg.planner import launches
from memcfg.planner.clock import QUEUE
from memcfg.planner.machine import CPU, Machine, named, stored
from memcfg.planner.tracker import Tracker

pytestmark = pytest.mark.torch

H200 = named("h200")
INSTANT = replace(H200, launch=0.0, view=0.0, native=0.0, native_view=0.0, hook=0.0)
"""A host that takes no time."""


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def tracked(machine: Machine, work: Callable[[], Any]) -> Tracker:
    with Tracker(machine) as tracker:
        work()
    return tracker


SINGLE = torch.float32
MEASURED: list[tuple[str, Any, Any, float]] = [
    # what is done, with what, microseconds of that kernel on one H200
    ("a product", torch.mm, (empty(8192, 2048), empty(2048, 8192)), 333),
    ("a small product", torch.mm, (empty(8192, 1024), empty(1024, 1024)), 25.6),
    ("a product of few rows", torch.mm, (empty(512, 1024), empty(1024, 3072)), 7.5),
    ("a factor for each number", torch.mul, (empty(4, 2048, 8192), empty(4, 2048, 8192)), 91),
    ("a repeated factor", torch.mul, (empty(4, 2048, 2048), empty(2048)), 44),
    ("a factor for each row", torch.mul, (empty(4, 2048, 2048, dtype=SINGLE), empty(4, 2048, 1, dtype=SINGLE)), 52.8),
    ("another type", torch.Tensor.to, (empty(4, 2048, 2048), SINGLE), 36.6),
    ("a few numbers", torch.add, (empty(512, 1024), empty(512, 1024)), 1.8),
]  # fmt: skip


@pytest.mark.parametrize(("name", "work", "given", "measured"), MEASURED, ids=[name for name, *_ in MEASURED])
def test_kernels_take_what_they_took_on_a_card(name: str, work: Any, given: Any, measured: float) -> None:
    found = tracked(INSTANT, lambda: work(*given)).clock.busy
    assert found == pytest.approx(measured * 1e-6, rel=0.3, abs=2e-6)


def test_operations_on_lists_count_what_they_write() -> None:
    """Two lists of which one is written: three times its bytes."""
    lists = [[empty(1 << 20, dtype=SINGLE) for _ in range(64)] for _ in range(2)]
    found = tracked(INSTANT, lambda: torch._foreach_add_(*lists)).clock.busy
    assert found == pytest.approx(3 * 64 * (4 << 20) / (0.7 * H200.bandwidth), rel=0.02)


def test_the_host_runs_ahead_of_the_device_and_waits_where_it_asks() -> None:
    machine = replace(INSTANT, launch=1e-6)
    x = torch.arange(4, device="cpu")

    def work(asks: bool) -> Tracker:
        with Tracker(machine) as tracker:
            known = x.to("meta")
            empty(1 << 14, 1 << 14) @ empty(1 << 14, 1 << 14)
            if asks:
                (known > 1).nonzero()
        return tracker

    assert work(asks=False).clock.host < 1e-4 < work(asks=False).clock.device
    clock = work(asks=True).clock
    assert clock.host == clock.device, "how many there are is known only when everything before has been computed"


def test_no_more_kernels_wait_than_a_stream_takes() -> None:
    machine = replace(INSTANT, launch=1e-9)
    one = empty(1 << 24)
    few = tracked(machine, lambda: [one + one for _ in range(QUEUE)]).clock
    many = tracked(machine, lambda: [one + one for _ in range(3 * QUEUE)]).clock
    assert few.host < 1e-5
    assert many.host == pytest.approx(many.device * 2 / 3, rel=0.01)


def test_hooks_on_saved_tensors_cost_the_host_time() -> None:
    machine = replace(INSTANT, hook=1.0)
    learned = empty(8, 8).requires_grad_()
    assert tracked(machine, lambda: learned * learned).clock.host == 0.0

    def hooked(work: Callable[[], Any]) -> float:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return tracked(machine, work).clock.host

    assert hooked(lambda: learned * learned) == 1.0
    with torch.no_grad():
        assert hooked(lambda: learned * learned) == 0.0


def test_heads_of_any_width_take_longer_than_their_products_where_masks_are_read() -> None:
    """Half the width takes more than half the time, and beyond 128 the backward is slow."""

    def seconds(width: int) -> float:
        given = (empty(1, 8, 2048, width), empty(1, 8, 2048, width), empty(1, 8, 2048, width))
        mask = empty(1, 8, 2048, 2048)
        work = torch.ops.aten._scaled_dot_product_efficient_attention
        return tracked(INSTANT, lambda: work(*given, mask, True)).clock.busy

    assert 0.6 < seconds(64) / seconds(128) < 0.8
    assert 2.5 < seconds(256) / seconds(128) < 4.0


def test_what_the_host_spends_is_shared_out_by_kernels_and_views() -> None:
    assert launches.Counted(kernels=100, views=50).each(1.25, view=0.5) == 0.01


def test_a_small_model_says_what_this_host_spends() -> None:
    found = launches.measured(CPU, device="cpu")
    assert found.launch > 0
    assert found.native > 0
    assert found.hook >= 0
    assert found.view / found.launch == pytest.approx(CPU.view / CPU.launch)
    assert replace(found, launch=1, view=1, native=1, native_view=1, hook=1, mode=1) == replace(
        CPU, launch=1, view=1, native=1, native_view=1, hook=1, mode=1
    )


def test_a_calibration_without_all_values_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(H200.to_dict()), encoding="utf-8")
    assert stored(file) == H200
    file.write_text(json.dumps({k: v for k, v in H200.to_dict().items() if k != "elements"}), encoding="utf-8")
    assert stored(file) is None
