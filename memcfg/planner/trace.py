"""Births and deaths of storages in the order in which they happened, and what a device would make of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from memcfg.planner.allocator import MIB, Block, CachingAllocator, Exceeded

PHASES: Final = ("load", "generation", "scoring", "input", "forward", "loss", "backward", "optimizer")
KINDS: Final = ("weights", "optimizer", "gradients", "activations", "cache", "logits", "workspace", "inputs")

EMPTY_CACHE: Final = 0
"""The event that is neither birth nor death: whole cached segments are given back."""


@dataclass(slots=True)
class Birth:
    """A storage. `kind` may be told later than its birth; `op` is the operator that made it; `ms` when."""

    size: int
    kind: str
    phase: str
    op: str
    ms: float


@dataclass
class Trace:
    """`events` holds `n` for the birth of `births[n - 1]`, `-n` for its death, and `EMPTY_CACHE`. `marks` are the places in
    `events` where a phase begins, with the step (0 is the build)."""

    births: list[Birth] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    deaths_ms: dict[int, float] = field(default_factory=dict)
    marks: list[tuple[int, int, str]] = field(default_factory=list)

    def born(self, size: int, kind: str, phase: str, op: str, ms: float) -> int:
        """Note a birth; returns the storage's number."""
        self.births.append(Birth(size, kind, phase, op, ms))
        number = len(self.births)
        self.events.append(number)
        return number

    def died(self, number: int, ms: float) -> None:
        self.events.append(-number)
        self.deaths_ms[number] = ms

    def mark(self, step: int, phase: str) -> None:
        self.marks.append((len(self.events), step, phase))

    def empty_cache(self) -> None:
        self.events.append(EMPTY_CACHE)


@dataclass(frozen=True)
class Replay:
    """What a device would report: bytes in use at the peak, by phase and where; `at` is the event of the peak."""

    allocated: int
    reserved: int
    phases: dict[str, int]
    at: int
    step: int
    phase: str


def replay(trace: Trace, *, limit: int | None = None, expandable: bool = False, again: Sequence[int] = ()) -> Replay:
    """Replay all events through the allocator model, and those of `again` after them (see `once_more`). Raises `Exceeded` under a
    limit that is too low.

    Peaks are those of the whole trace, the build included, as a fresh process reports them."""
    allocator, blocks = CachingAllocator(limit, expandable=expandable), dict[int, Block]()
    births, malloc, free = trace.births, allocator.malloc, allocator.free
    phases: dict[str, int] = {}
    peak, at, step, phase, peak_step, peak_phase = 0, 0, 0, "load", 0, "load"
    for first, end, step, phase in _stretches(trace):
        highest = max(phases.get(phase, 0), allocator.allocated)
        for index in range(first, end):
            event = trace.events[index]
            if event > 0:
                blocks[event] = malloc(births[event - 1].size)
                if allocator.allocated > highest:
                    highest = allocator.allocated
                    if highest > peak:
                        peak, at, peak_step, peak_phase = highest, index, step, phase
            elif event < 0:
                free(blocks.pop(-event))
            else:
                allocator.empty_cache()
        phases[phase] = highest
    _settle(trace, allocator, blocks, again)
    return Replay(max(peak, allocator.peak_allocated), allocator.peak_reserved, phases, at, peak_step, peak_phase)


def _stretches(trace: Trace) -> Iterator[tuple[int, int, int, str]]:
    """The events of each phase that is entered before the last of them: where they begin and end, the step and the phase."""
    begins = [mark for mark in trace.marks if mark[0] < len(trace.events)]
    if not begins or begins[0][0]:
        begins.insert(0, (0, 0, "load"))
    ends = [*(mark[0] for mark in begins[1:]), len(trace.events)]
    for (first, step, phase), end in zip(begins, ends, strict=True):
        yield first, end, step, phase


def _settle(trace: Trace, allocator: CachingAllocator, blocks: dict[int, Block], again: Sequence[int]) -> None:
    for event in again:
        if event > 0:
            blocks[event] = allocator.malloc(trace.births[(event - 1) % len(trace.births)].size)
        elif event == EMPTY_CACHE:
            allocator.empty_cache()
        elif -event in blocks:
            allocator.free(blocks.pop(-event))


def once_more(trace: Trace) -> list[int]:
    """The events of the last step again, as the step after it: where cached blocks lie settles only then. Births have
    numbers beyond those of the trace; what the step found alive and ended is what the step before it left of that size."""
    if not trace.marks:
        return []
    last = max(step for _, step, _ in trace.marks)
    first = next(at for at, step, _ in trace.marks if step == last)
    events, beyond = trace.events[first:], len(trace.births)
    born = {event for event in events if event > 0}
    left: dict[int, list[int]] = {}
    for number in sorted(born - {-event for event in events if event < 0}):
        left.setdefault(trace.births[number - 1].size, []).append(number)
    found = []
    for event in events:
        if event >= 0:
            found.append(event + beyond if event else EMPTY_CACHE)
        elif -event in born:
            found.append(event - beyond)
        elif left.get(trace.births[-event - 1].size):
            found.append(-left[trace.births[-event - 1].size].pop(0))
    return found


def requested(trace: Trace) -> Replay:
    """The same in plain bytes, without any allocator: what a CPU uses."""
    live = peak = at = 0
    phases: dict[str, int] = {}
    marks = iter([*trace.marks, (len(trace.events) + 1, -1, "")])
    following, step, phase = next(marks), 0, "load"
    peak_step, peak_phase = 0, "load"
    for index, event in enumerate(trace.events):
        while index >= following[0]:
            _, step, phase = following
            phases[phase] = max(phases.get(phase, 0), live)
            following = next(marks)
        if event > 0:
            live += trace.births[event - 1].size
            phases[phase] = max(phases.get(phase, 0), live)
            if live > peak:
                peak, at, peak_step, peak_phase = live, index, step, phase
        elif event < 0:
            live -= trace.births[-event - 1].size
    return Replay(peak, peak, phases, at, peak_step, peak_phase)


def smallest_limit(trace: Trace, found: Replay, *, expandable: bool = False, within: int = 32 * MIB) -> int:
    """The smallest limit on reserved bytes under which everything still runs, to within `within` bytes."""
    low, high = found.allocated, found.reserved
    while high - low > within:
        middle = (low + high) // 2
        try:
            replay(trace, limit=middle, expandable=expandable)
            high = middle
        except Exceeded:
            low = middle
    return high


def alive(trace: Trace, at: int) -> Iterable[Birth]:
    """The storages that are alive after event `at`."""
    dead = {-event for event in trace.events[: at + 1] if event < 0}
    return (trace.births[event - 1] for event in trace.events[: at + 1] if event > 0 and event not in dead)
