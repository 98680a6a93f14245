"""What became of every job of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memcfg.report.words import count, wrapped

if TYPE_CHECKING:
    from rich.table import Table


def show_sweep(outcomes: Sequence[Mapping[str, Any]]) -> list[str | Table]:
    """A line for each job, with the reason where there is no result."""
    from rich.table import Table

    common = _common([job["overrides"] for job in outcomes])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    table.add_column("job", justify="right")
    table.add_column("overrides", ratio=2, overflow="fold")
    table.add_column("outcome")
    table.add_column("loss, or why not", ratio=3, overflow="fold")
    for job in outcomes:
        loss = job.get("loss_last")
        said = job.get("reason") or ("" if loss is None else f"{loss:.3f}")
        table.add_row(str(job["number"]), " ".join(o for o in job["overrides"] if o not in common), job["status"], said)
    everywhere = wrapped(f"with {' '.join(common)}", indent="     ", first="") if common else []
    return [_total(outcomes), *everywhere, "", table]


def _total(outcomes: Sequence[Mapping[str, Any]]) -> str:
    parts = [count(len(outcomes), "job")]
    for status in ("completed", "refused", "failed"):
        number = sum(job["status"] == status for job in outcomes)
        parts += [f"{number} {status}"] if number else []
    return ", ".join(parts)


def _common(overrides: Sequence[Sequence[str]]) -> list[str]:
    """What all jobs have, where there are several."""
    return [said for said in overrides[0] if all(said in others for others in overrides)] if len(overrides) > 1 else []
