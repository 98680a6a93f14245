"""Numbers that rounds of sampling are described by, joined over the rounds since they were last read."""

from __future__ import annotations

from collections.abc import Mapping

from memcfg.engine.joining import ALONE, Group


class Figures:
    """Means by name; of names that end in `min` or `max` the least and the greatest."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, float]]] = {}

    def add(self, figures: Mapping[str, float], weight: float = 1.0) -> None:
        """Add one round's. Its means count `weight` times."""
        for name, value in figures.items():
            self._seen.setdefault(name, []).append((float(value), weight))

    def read(self, group: Group = ALONE) -> dict[str, float]:
        """The joined figures, which then start anew. Where each process has seen other rounds, all of `group` must call it."""
        parts, self._seen = group.all(self._seen), {}
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: _joined(name, [seen for part in parts for seen in part.get(name, [])]) for name in names}


def _joined(name: str, values: list[tuple[float, float]]) -> float:
    if name.endswith("min"):
        return min(value for value, _ in values)
    if name.endswith("max"):
        return max(value for value, _ in values)
    return sum(value * weight for value, weight in values) / sum(weight for _, weight in values)
