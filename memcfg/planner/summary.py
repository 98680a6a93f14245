"""From a recorded run to a `Prediction`: peaks, what is alive there, and live bytes through the last step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from memcfg.planner.machine import Machine
from memcfg.planner.prediction import Piece, Prediction, Timeline
from memcfg.planner.trace import KINDS, PHASES, Replay, Trace, alive, once_more, replay, requested, smallest_limit

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.planner.simulate import Recorded

EXPANDABLE: Final = "allocator.expandable"
"""The option that changes how the allocator asks for memory, and nothing about what it is asked for."""

SAMPLES: Final = 240
"""Points of a timeline."""

SHORTEST_PHASE: Final = 0.002
"""Share of a step below which a phase is not told in a timeline."""


def summarised(plan: Plan, machine: Machine, recorded: Recorded, seconds: float) -> Prediction:
    """The prediction for a recorded run on `machine`."""
    trace, expandable = recorded.trace, bool(plan.get(EXPANDABLE))
    found = replay(trace, expandable=expandable, again=once_more(trace)) if machine.rounds else requested(trace)
    smallest = smallest_limit(trace, found, expandable=expandable) if machine.rounds else found.allocated
    pieces = _pieces(trace, found)
    kinds = Counter[str]()
    for piece in pieces:
        kinds[piece.kind] += piece.bytes
    return Prediction(
        allocated_bytes=found.allocated, reserved_bytes=found.reserved, smallest_bytes=smallest,
        outside_bytes=machine.outside, host_bytes=recorded.host_bytes, step_ms=step_ms(plan, recorded),
        phases={phase: found.phases[phase] for phase in PHASES if phase in found.phases},
        kinds={kind: kinds[kind] for kind in KINDS if kinds[kind]}, peak_phase=found.phase, peak=tuple(pieces),
        timeline=timeline(trace, recorded), machine=machine.name, parameters=recorded.parameters,
        trained=recorded.trained, tokens=recorded.tokens, seconds=round(seconds, 3), assumed=recorded.assumed,
        positions=recorded.positions, unforeseen_bytes=int(recorded.unforeseen * smallest),
    )  # fmt: skip


def _pieces(trace: Trace, found: Replay) -> list[Piece]:
    """What is alive at the peak, the largest first."""
    sizes, counts = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    for birth in alive(trace, found.at):
        key = (birth.kind, birth.phase, birth.op)
        sizes[key] += birth.size
        counts[key] += 1
    return [Piece(*key, bytes=size, count=counts[key]) for key, size in sizes.most_common()]


def step_ms(plan: Plan, recorded: Recorded) -> float:
    """The last step's time. Micro-batches that were left out take as long as the last one that was run; of a round of sampling
    each step that it serves has its part."""
    last = len(recorded.step_began)
    marks = [(at, phase) for at, number, phase in recorded.trace.marks if number == last]
    begins = {phase: at for at, phase in marks if phase in ("input", "optimizer")}
    first = _ms_at(recorded.trace, begins["input"])
    update = recorded.ended - _ms_at(recorded.trace, begins["optimizer"])
    each = (recorded.ended - first - update) / recorded.taken
    sampling = (first - recorded.step_began[-1]) / recorded.steps
    return round(sampling + each * recorded.micro_batches + update, 3)


def _ms_at(trace: Trace, at: int) -> float:
    """When the event at index `at` happened."""
    for event in trace.events[at:]:
        if event > 0:
            return trace.births[event - 1].ms
        if event < 0:
            return trace.deaths_ms[-event]
    return max((birth.ms for birth in trace.births[-1:]), default=0.0)


def timeline(trace: Trace, recorded: Recorded) -> Timeline:
    """Live bytes by kind through the last step, at most `SAMPLES` points, each the highest of its stretch."""
    last = len(recorded.step_began)
    first = next((at for at, number, _ in trace.marks if number == last), 0)
    events = trace.events[first:]
    live = _live(trace, first)
    now = sum(live.values())
    stretch = max(1, -(-len(events) // SAMPLES))
    times, samples = [], []
    for start in range(0, len(events), stretch):
        best, total = dict(live), now
        for event in events[start : start + stretch]:
            now += _apply(trace, event, live)
            if now > total:
                best, total = dict(live), now
        times.append(_ms_at(trace, first + start) - recorded.step_began[-1])
        samples.append(best)
    phases = [
        (_ms_at(trace, at) - recorded.step_began[-1], phase) for at, number, phase in trace.marks if number == last
    ]
    whole = recorded.ended - recorded.step_began[-1]
    ends = [*(ms for ms, _ in phases[1:]), whole]
    phases = [begin for begin, end in zip(phases, ends, strict=True) if end - begin[0] > SHORTEST_PHASE * whole]
    return Timeline(
        tuple(round(ms, 3) for ms in times),
        {kind: tuple(s.get(kind, 0) for s in samples) for kind in KINDS if any(s.get(kind) for s in samples)},
        tuple((round(ms, 3), phase) for ms, phase in phases),
    )


def _live(trace: Trace, until: int) -> dict[str, int]:
    """Live bytes by kind before event `until`."""
    live: dict[str, int] = {}
    for event in trace.events[:until]:
        _apply(trace, event, live)
    return live


def _apply(trace: Trace, event: int, live: dict[str, int]) -> int:
    """Note a birth or a death. Returns by how many bytes there are more."""
    if not event:
        return 0
    birth = trace.births[abs(event) - 1]
    change = birth.size if event > 0 else -birth.size
    live[birth.kind] = live.get(birth.kind, 0) + change
    return change
