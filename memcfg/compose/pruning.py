"""Which points of a sweep can be run at all, and which rules exclude the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memcfg.errors import ConflictError, Problem, RequestError

if TYPE_CHECKING:
    from memcfg.compose.points import Points
    from memcfg.plan import Plan
    from memcfg.registry import Registry

NOT_YET = ".not_yet"


@dataclass(frozen=True)
class Excluded:
    """A point without a run: its overrides, the rules that exclude it, and how."""

    overrides: tuple[str, ...]
    rules: tuple[str, ...]
    text: str


def pruned(
    points: Points, registry: Registry, grid: Iterable[Sequence[str]]
) -> tuple[list[tuple[str, ...]], list[Excluded]]:
    """The points that can be run, and those that cannot. Raises `RequestError` with everything that is not understood:
    a value that no option has is no point to leave out silently."""
    kept: list[tuple[str, ...]] = []
    excluded: list[Excluded] = []
    problems: dict[Problem, None] = {}
    for point in map(tuple, grid):
        try:
            why = _why_not(registry.plan(points.request(point)))
        except ConflictError as error:
            why = [(c.rules, c.text) for c in error.conflicts[:1]]
        except RequestError as error:
            problems.update(dict.fromkeys(error.problems))
            continue
        if why:
            excluded.append(Excluded(point, *why[0]))
        else:
            kept.append(point)
    if problems:
        raise RequestError(*problems)
    return kept, excluded


def _why_not(plan: Plan) -> list[tuple[tuple[str, ...], str]]:
    """What this version cannot run yet of a plan."""
    return [((note.rule,), note.text) for note in plan.notes if note.rule.endswith(NOT_YET)]
