"""The simulation against what real steps allocate on the CPU, with the peak in different phases of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memcfg.plan import Plan

pytestmark = pytest.mark.torch

Planned = Callable[..., Plan]
Grown = Callable[[Plan], Any]

WIDE = "truncation.max_length=160 run.batch_size=4"
SHORT = "truncation.max_length=8 run.batch_size=1"

SPECS = [
    ("loss=nll checkpointing=none attention=eager", "backward"),
    ("loss=nll checkpointing=none", "backward"),
    ("loss=nll", "backward"),
    (f"loss=nll {WIDE} model.dtype=bfloat16 checkpointing=none", "backward"),
    ("loss=chunked_nll checkpointing=none loss.chunk_mib=1", "loss"),
    (f"loss.chunk_mib=1 {WIDE}", "backward"),
    (f"loss.chunk_mib=1 {WIDE} checkpointing.reentrant=true", "backward"),
    (f"loss=dft loss.chunk_mib=1 {WIDE} model.layers=12 checkpointing=none", "loss"),
    (f"attention=eager loss.chunk_mib=1 {WIDE} truncation.max_length=400", "backward"),
    ("packing=bfd loss=nll", "backward"),
    (f"packing=bfd {WIDE} loss.chunk_mib=1 checkpointing=none model.layers=8", "loss"),
    (f"padding_free=on {SHORT}", "optimizer"),
    ("run.accumulation=3 loss=nll", "backward"),
    (f"model.tied=true checkpointing=none {SHORT}", "optimizer"),
    (f"run.max_grad_norm=null optimizer.weight_decay=0.1 {SHORT}", "optimizer"),
    (f"padding.multiple_of=64 loss.chunk_mib=1 {WIDE}", "backward"),
]


@pytest.mark.parametrize(("given", "phase"), SPECS, ids=[given for given, _ in SPECS])
def test_a_step_grows_as_predicted(given: str, phase: str, planned: Planned, simulated: Grown, measured: Grown) -> None:
    plan = planned(*given.split())
    predicted, real = simulated(plan), measured(plan)
    assert predicted.peak == pytest.approx(real, rel=1e-3)
    assert max(predicted.phases, key=predicted.phases.__getitem__) == phase
