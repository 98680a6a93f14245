"""A sweep as text: the points that were left out, grouped by the rules that exclude them, and what became of the jobs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from memcfg.report.tables import Column, table
from memcfg.report.words import count, gib, listed, wrapped

if TYPE_CHECKING:
    from rich.table import Table

SHOWN: Final = 6
"""Points of a group that are named."""

RESULTS: Final = ("loss_first", "loss_last", "eval_loss_last", "tokens_per_second", "peak_bytes", "seconds")


class Told(Protocol):
    """A job: see `memcfg.commands.job.Outcome`."""

    @property
    def number(self) -> int: ...
    @property
    def overrides(self) -> tuple[str, ...]: ...
    @property
    def folder(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def results(self) -> Mapping[str, Any]: ...


class LeftOut(Protocol):
    """A point without a run: see `memcfg.compose.pruning.Excluded`."""

    @property
    def overrides(self) -> tuple[str, ...]: ...
    @property
    def rules(self) -> tuple[str, ...]: ...
    @property
    def text(self) -> str: ...


# ------------------------------------------------------------------------------------------------------- what is left out


def show_excluded(excluded: Sequence[LeftOut], kept: Sequence[Sequence[str]]) -> list[str]:
    """The points that cannot be run, a paragraph for each set of rules. `kept`: the overrides of the others."""
    lines = [f"{len(excluded)} of {count(len(excluded) + len(kept), 'point')} cannot be run"]
    shared = common([*kept, *(point.overrides for point in excluded)])
    for rules, group in _grouped(excluded).items():
        lines += ["", *wrapped(f"{count(len(group), 'point')}: {listed(rules, 'and') or 'facts alone'}", indent="  ")]
        lines += [line for text in group[0].text.splitlines() for line in wrapped(text, indent="      ", first="    ")]
        lines += [f"    - {' '.join(own(point.overrides, shared)) or 'every point'}" for point in group[:SHOWN]]
        lines += [f"    and {len(group) - SHOWN} more"] if len(group) > SHOWN else []
    return lines


def _grouped(excluded: Sequence[LeftOut]) -> dict[tuple[str, ...], list[LeftOut]]:
    """By the rules that exclude them, the largest group first."""
    groups: dict[tuple[str, ...], list[LeftOut]] = {}
    for point in excluded:
        groups.setdefault(tuple(sorted(point.rules)), []).append(point)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


# ----------------------------------------------------------------------------------------------------- what became of jobs


def show_sweep(jobs: Sequence[Told]) -> list[str | Table]:
    """A line for each job: its results, or the reason why there are none."""
    shared = common([job.overrides for job in jobs])
    columns = (
        Column("job", right=True), Column("overrides", ratio=2), Column("outcome"), Column("loss, memory, speed, or why not", ratio=3),
    )  # fmt: skip
    rows = (
        (str(job.number), " ".join(own(job.overrides, shared)), job.status, job.reason or _said(job.results))
        for job in jobs
    )
    everywhere = wrapped(f"with {' '.join(shared)}", indent="     ", first="") if shared else []
    return [_total(jobs), *everywhere, "", *table(columns, rows)]


def _said(results: Mapping[str, Any]) -> str:
    parts = [
        f"{results['loss_last']:.3f}" if results.get("loss_last") is not None else "",
        gib(results["peak_bytes"]) if results.get("peak_bytes") else "",
        f"{results['tokens_per_second']:,.0f} tokens/s" if results.get("tokens_per_second") else "",
    ]
    return ", ".join(part for part in parts if part)


def _total(jobs: Sequence[Told]) -> str:
    parts = [count(len(jobs), "job")]
    for status in ("completed", "refused", "failed", "interrupted", "running"):
        number = sum(job.status == status for job in jobs)
        parts += [f"{number} {status}"] if number else []
    return ", ".join(parts)


def common(overrides: Sequence[Sequence[str]]) -> list[str]:
    """What all have, where there are several."""
    return [said for said in overrides[0] if all(said in others for others in overrides)] if len(overrides) > 1 else []


def own(overrides: Iterable[str], shared: Sequence[str]) -> list[str]:
    """What one has beyond what all have."""
    return [said for said in overrides if said not in shared]


# ------------------------------------------------------------------------------------------------------------------ files


def sweep_csv(jobs: Sequence[Told], excluded: Sequence[LeftOut]) -> str:
    """One line for each point: what was chosen, what came out. Excluded points have no job and the status `pruned`."""
    names = _names([*(job.overrides for job in jobs), *(point.overrides for point in excluded)])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["job", *names, "status", *RESULTS, "folder", "reason"])
    for job in jobs:
        results = [job.results.get(name, "") for name in RESULTS]
        results = ["" if value is None else value for value in results]
        writer.writerow([job.number, *_chosen(job, names), job.status, *results, job.folder, job.reason])
    for point in excluded:
        reason = ", ".join(point.rules)
        writer.writerow(["", *_chosen(point, names), "pruned", *("" for _ in RESULTS), "", reason])
    return out.getvalue()


def sweep_data(jobs: Sequence[Told], excluded: Sequence[LeftOut]) -> dict[str, Any]:
    """All of it as plain data."""
    names = ("number", "overrides", "folder", "status", "reason", "results")
    return {
        "jobs": [{name: getattr(job, name) for name in names} for job in jobs],
        "excluded": [{"overrides": list(p.overrides), "rules": list(p.rules), "text": p.text} for p in excluded],
    }


def sweep_markdown(jobs: Sequence[Told], excluded: Sequence[LeftOut]) -> str:
    """The comparison as a page."""
    names = _names([job.overrides for job in jobs])
    varied = [name for name in names if len({_choice(job.overrides, name) for job in jobs}) > 1 or len(jobs) == 1]
    fixed = common([job.overrides for job in jobs])
    head = [
        "job",
        *(f"`{name}`" for name in varied),
        "outcome",
        "loss",
        "held-out loss",
        "tokens/s",
        "peak memory",
        "seconds",
    ]
    lines = ["# Sweep", "", _total(jobs), ""]
    lines += [f"In every job: {listed(fixed, 'and')}", ""] if fixed else []
    lines += [_row(head), _row(["---"] * len(head))]
    lines += [_row([str(job.number), *(_choice(job.overrides, n) for n in varied), *_cells(job)]) for job in jobs]
    lines += _reasons(jobs)
    if excluded:
        kept = [job.overrides for job in jobs]
        lines += ["", "## Points that cannot be run", "", "```", *show_excluded(excluded, kept), "```"]
    return "\n".join(lines) + "\n"


def _cells(job: Told) -> list[str]:
    got = job.results
    return [
        job.status,
        *(_number(got.get(name), form) for name, form in (("loss_last", ".4f"), ("eval_loss_last", ".4f"))),
        _number(got.get("tokens_per_second"), ",.0f"),
        gib(got["peak_bytes"]) if got.get("peak_bytes") else "",
        _number(got.get("seconds"), ".1f"),
    ]


def _reasons(jobs: Sequence[Told]) -> list[str]:
    told = [job for job in jobs if job.reason]
    lines = ["", "## Jobs without a result"] if told else []
    for job in told:
        lines += ["", f"Job {job.number} ({job.status}), `{' '.join(job.overrides)}`:", "", "```", job.reason, "```"]
    return lines


def _number(value: Any, form: str) -> str:
    return "" if value is None else format(value, form)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _names(overrides: Iterable[Sequence[str]]) -> list[str]:
    """The names that the overrides set, in order of appearance."""
    return list(dict.fromkeys(_name(word) for words in overrides for word in words))


def _name(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]


def _choice(overrides: Sequence[str], name: str) -> str:
    said = [word for word in overrides if _name(word) == name]
    return said[-1].partition("=")[2] if said else ""


def _chosen(point: Told | LeftOut, names: Sequence[str]) -> list[str]:
    return [_choice(point.overrides, name) for name in names]
