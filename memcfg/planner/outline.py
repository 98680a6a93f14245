"""An outline of a prediction, ten times cheaper than the whole: the step of the same plan with few layers, twice.

Every layer of a model keeps and makes the same, so the peak of each phase and the time are straight lines over depth. Two
short simulations give the lines; the model's depth gives the answer. Good to a few per cent, which is enough to leave out
what cannot fit and to put what can in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memcfg.planner.batches import Lengths
from memcfg.planner.machine import Machine
from memcfg.planner.simulate import Recorded, record
from memcfg.planner.summary import step_ms
from memcfg.planner.trace import replay, requested

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry.hooks import Hooks

DEPTHS: Final = (3, 5)
"""From the third layer on the lines are straight."""


@dataclass(frozen=True)
class Outline:
    """Estimates: bytes in use at the peak, bytes of a card that the step needs, and milliseconds."""

    allocated: int
    needed: int
    ms: float


def outline(plan: Plan, hooks: Hooks, machine: Machine, lengths: Lengths | None = None) -> Outline:
    """The outline of a plan. Raises what `build` raises."""
    try:
        short, longer = (_of(plan, record(plan, hooks, machine, lengths, layers=n), machine) for n in DEPTHS)
    except ValueError:  # no repeated layers are known: the whole model
        whole = _of(plan, record(plan, hooks, machine, lengths), machine)
        short = longer = whole
    more = (longer.layers - DEPTHS[1]) / (DEPTHS[1] - DEPTHS[0])
    phases = {p: size + more * (size - short.phases.get(p, size)) for p, size in longer.phases.items()}
    allocated = int(max(phases.values()))
    ms = longer.ms + more * (longer.ms - short.ms)
    return Outline(allocated, int(allocated * longer.slack) + machine.outside, ms)


@dataclass(frozen=True)
class _Short:
    phases: dict[str, int]
    slack: float
    ms: float
    layers: int


def _of(plan: Plan, recorded: Recorded, machine: Machine) -> _Short:
    found = replay(recorded.trace) if machine.rounds else requested(recorded.trace)
    return _Short(found.phases, SLACK if machine.rounds else 1.0, step_ms(plan, recorded), recorded.layers)


SLACK: Final = 1.02
"""What fragmentation adds where the allocator gives back what it can; the whole simulation knows better."""
