"""Liger's loss while a step is simulated for a card: as it goes on the card, whatever `meta` calls itself."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("liger_kernel")

from liger_kernel.ops import fused_linear_cross_entropy as liger
from memcfg_liger.simulation import stand_ins

from memcfg import simulated
from memcfg.planner import standins
from memcfg.planner.machine import named
from memcfg.planner.tracker import Tracker

pytestmark = pytest.mark.torch
ROWS, WIDTH, VOCABULARY, CHUNK = 72, 32, 256, 16


def loss_on_h200() -> Tracker:
    """Forward and backward of a bfloat16 head with a float32 sum of its gradient, in chunks of sixteen rows."""
    tracker = Tracker(named("h200"))
    with standins.in_place(stand_ins(90)), tracker, simulated.listening(tracker):
        rows = torch.empty(ROWS, WIDTH, dtype=torch.bfloat16, device="meta", requires_grad=True)
        weight = torch.empty(VOCABULARY, WIDTH, dtype=torch.bfloat16, device="meta", requires_grad=True)
        targets = torch.arange(ROWS, device="meta")
        found = liger.LigerFusedLinearCrossEntropyFunction.apply(
            rows, weight, targets, None, None, -100, 0.0, 0.0, "sum", None, False, torch.float32
        )
        found[0].backward()
    return tracker


@pytest.mark.skipif(not hasattr(liger, "_can_use_mm_out"), reason="an older Liger has one way for all devices")
def test_the_weight_gradient_is_added_up_in_place_and_logits_have_one_buffer() -> None:
    born = [birth.size for birth in loss_on_h200().trace.births]
    assert born.count(4 * VOCABULARY * WIDTH) == 1, "one sum in float32 for all chunks"
    assert born.count(2 * VOCABULARY * CHUNK) == 1, "one buffer of logits"


def test_launches_take_time_by_what_they_were_given() -> None:
    tracker = Tracker(named("h200"))
    with tracker, simulated.listening(tracker):
        before = tracker.clock.busy
        stand_ins(90)["triton.runtime.jit:JITFunction.run"](
            None, torch.empty(1 << 30, dtype=torch.bfloat16, device="meta"), 7
        )
    machine = tracker.machine
    assert tracker.clock.busy - before == pytest.approx((2 << 30) / machine.bandwidth + machine.shortest)
