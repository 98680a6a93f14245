"""What a simulated step would use: plain data, free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Verdict = Literal["fits", "too large", "close"]

MARGIN: Final = 0.015
"""How near to the budget, as a share of it, no verdict is given. Predictions were within a fraction of a per cent of what
was measured; the rest is what other processes and a driver's own caches may take."""


@dataclass(frozen=True)
class Piece:
    """Storages that are alive at the peak and of one kind, made by one operator in one phase."""

    kind: str
    phase: str
    op: str
    bytes: int
    count: int


@dataclass(frozen=True)
class Timeline:
    """Live bytes through one step: `kinds[k][i]` at `ms[i]`, the largest of what lies between two samples. `phases` are
    `(ms, phase)` where each begins."""

    ms: tuple[float, ...] = ()
    kinds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    phases: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Prediction:
    """Memory of one process in bytes.

    `allocated_bytes` is what `torch.cuda.max_memory_allocated` would report and `reserved_bytes` what
    `max_memory_reserved` would. `smallest_bytes` is the least that may be reserved before an allocation fails, and
    `outside_bytes` what no allocator sees (context, libraries). `phases`: peak in each phase. `kinds`: what is alive at
    the peak. `step_ms` is an estimate by roofline, good for ranking. `host_bytes`: activations kept in host memory."""

    allocated_bytes: int
    reserved_bytes: int
    smallest_bytes: int
    outside_bytes: int
    host_bytes: int
    step_ms: float
    phases: Mapping[str, int]
    kinds: Mapping[str, int]
    peak_phase: str
    peak: tuple[Piece, ...] = ()
    timeline: Timeline = field(default_factory=Timeline)
    machine: str = ""
    parameters: int = 0
    trained: int = 0
    tokens: int = 0
    """Tokens of one optimizer step, padding included."""
    seconds: float = 0.0
    """What the simulation itself took."""
    assumed: tuple[str, ...] = ()
    """What was taken for sizes that depend on the data, each as a clause."""
    positions: int | None = None
    """Positions that the model was made for; None where its configuration states no end."""
    unforeseen_bytes: int = 0
    """What the allocator may reserve beyond the prediction, where blocks belong to streams whose times nobody knows."""

    @property
    def needed_bytes(self) -> int:
        """The least memory of a card on which the step runs."""
        return self.outside_bytes + self.smallest_bytes

    @property
    def sure_bytes(self) -> int:
        """The least memory of a card on which the step runs whatever streams hold besides."""
        return self.needed_bytes + self.unforeseen_bytes

    def verdict(self, budget: int, margin: float = MARGIN) -> Verdict:
        """Whether the step runs within `budget` bytes of a card's memory."""
        if self.sure_bytes <= budget * (1 - margin):
            return "fits"
        return "too large" if self.needed_bytes > budget * (1 + margin) else "close"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self) | {"needed_bytes": self.needed_bytes}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Prediction:
        values = {key: value for key, value in data.items() if key != "needed_bytes"}
        line = values.pop("timeline")
        timeline = Timeline(
            tuple(line["ms"]),
            {kind: tuple(sizes) for kind, sizes in line["kinds"].items()},
            tuple((ms, phase) for ms, phase in line["phases"]),
        )
        pieces = tuple(Piece(**piece) for piece in values["peak"])
        return cls(**values | {"peak": pieces, "timeline": timeline, "assumed": tuple(values.get("assumed", ()))})
