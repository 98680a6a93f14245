"""`report.html` of a sweep: its jobs side by side, their losses over one another, and the points that could not be run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup

from memcfg.report.pages.charts import HUES, Curve, curves, finite
from memcfg.report.pages.frame import Cell, Part, details, el, page, pill, prose, table, tiles, together
from memcfg.report.pages.training import series
from memcfg.report.sweep import common, own
from memcfg.report.words import count, duration, gib
from memcfg.runfiles import RunFiles, SweepFiles

MOODS: Final = {"completed": "good", "failed": "bad", "refused": "warn", "interrupted": "warn", "running": "warn"}
COLUMNS: Final = (
    ("loss", "loss_last", min), ("held-out loss", "eval_loss_last", min), ("tokens/s", "tokens_per_second", max),
    ("peak memory", "peak_bytes", min), ("seconds", "seconds", min),
)  # fmt: skip
"""What jobs are compared by, and which of two is better."""
PAGE: Final = "report.html"
DRAWN: Final = 24
"""Jobs whose curves are drawn: more cannot be told apart."""


@dataclass(frozen=True)
class Job:
    """One job as far as its files are what they should be."""

    number: str
    overrides: tuple[str, ...]
    status: str
    reason: str
    results: Mapping[str, Any]
    run: RunFiles

    def value(self, key: str) -> float | None:
        return finite(self.results.get(key))


def job_of(status: Mapping[str, Any], run: RunFiles) -> Job:
    said, results = status.get("overrides"), status.get("results")
    return Job(
        str(status.get("number", "?")), tuple(map(str, said)) if isinstance(said, list) else (), str(status.get("status", "unknown")),
        str(status.get("reason") or ""), results if isinstance(results, Mapping) else {}, run,
    )  # fmt: skip


def page_of(sweep: SweepFiles) -> str:
    """The whole file."""
    jobs = [job_of(status, run) for status, run in sweep.jobs]
    shared = common([job.overrides for job in jobs])
    name = sweep.folder.resolve().name
    sections = [
        ("jobs", "Jobs", _jobs(jobs, shared, sweep.folder)),
        ("losses", "Losses", _losses(jobs, shared)),
        ("excluded", "Points that cannot be run", _excluded(sweep.excluded)),
        ("unfinished", "Jobs without a result", _reasons(jobs)),
        ("notes", "Notes", _faults(sweep)),
    ]
    shown = [(key, title, content) for key, title, content in sections if content is not None]
    return page(f"{name} · memcfg sweep", _head(name, jobs, shared, sweep), shown)


def _head(name: str, jobs: Sequence[Job], shared: Sequence[str], sweep: SweepFiles) -> Markup:
    pills = []
    for status in dict.fromkeys([*MOODS, *(job.status for job in jobs)]):
        number = sum(job.status == status for job in jobs)
        pills += [pill(f"{number} {status}", MOODS.get(status, ""))] if number else []
    left = [pill(f"{len(sweep.excluded)} left out")] if sweep.excluded else []
    told = el("p", "In every job: ", el("code", " ".join(shared)), cls="soft") if shared else None
    headline = el("div", el("h1", name), *pills, *left, cls="headline")
    return together(
        [headline, el("p", f"memcfg sweep: {count(len(jobs), 'job')}", cls="soft"), told, tiles(_best(jobs, shared))]
    )


def _best(jobs: Sequence[Job], shared: Sequence[str]) -> Iterator[tuple[str, Part, Part]]:
    """The best of the completed jobs in each column."""
    for title, key, better in COLUMNS:
        known = [(value, job) for job in jobs if job.status == "completed" and (value := job.value(key)) is not None]
        if len(known) > 1:
            value, job = better(known, key=lambda pair: pair[0])
            yield f"best {title}", _told(key, value), f"job {job.number}: {_named(job, shared)}"


def _told(key: str, value: float) -> str:
    forms = {"peak_bytes": gib, "seconds": duration, "tokens_per_second": lambda rate: f"{rate:,.0f}"}
    return forms[key](value) if key in forms else f"{value:.4f}"


def _named(job: Job, shared: Sequence[str]) -> str:
    return " ".join(own(job.overrides, shared)) or "the plain run"


# ---------------------------------------------------------------------------------------------------------------- jobs


def _jobs(jobs: Sequence[Job], shared: Sequence[str], folder: Path) -> Markup | None:
    if not jobs:
        return None
    best = {
        key: better(values) for _, key, better in COLUMNS
        if len(values := [v for job in jobs if job.status == "completed" and (v := job.value(key)) is not None]) > 1
    }  # fmt: skip
    heads = ["job", "overrides", "outcome", *(title for title, _, _ in COLUMNS), "report"]
    rows = [_row(job, shared, best, folder) for job in jobs]
    return table(heads, rows, label="jobs", numbers=range(3, 3 + len(COLUMNS)), cls="cards facts")


def _row(job: Job, shared: Sequence[str], best: Mapping[str, float], folder: Path) -> list[Part]:
    cells: list[Part] = []
    for _, key, _ in COLUMNS:
        value = job.value(key)
        text = "" if value is None else _told(key, value)
        cells.append(
            Cell(text, "best") if value is not None and value == best.get(key) and job.status == "completed" else text
        )
    return [
        job.number, el("code", _named(job, shared)), pill(job.status, MOODS.get(job.status, "")), *cells, _link(job, folder),
    ]  # fmt: skip


def _link(job: Job, folder: Path) -> Part:
    """To the job's own page, where there is one."""
    if not (job.run.folder / PAGE).is_file():
        return ""
    return el(
        "a",
        "open",
        href=quote(f"./{(job.run.folder / PAGE).relative_to(folder).as_posix()}"),
        aria_label=f"report of job {job.number}",
    )


def _losses(jobs: Sequence[Job], shared: Sequence[str]) -> Markup | None:
    """Every job's curve over the others, training and held-out."""
    drawn = jobs[:DRAWN]
    figures = []
    for title, key in (("training loss", "loss"), ("held-out loss", "eval_loss")):
        lines = [
            Curve(f"{job.number}: {_named(job, shared)}", series(job.run.metrics, key), i % HUES, bool(i % 2))
            for i, job in enumerate(drawn)
        ]
        figures.append(curves(title, lines))
    found = [figure for figure in figures if figure is not None]
    more = el("p", f"the first {DRAWN} of {len(jobs)} jobs", cls="soft") if len(jobs) > DRAWN else None
    return together([more, el("div", *found, cls="charts")]) if found else None


# ------------------------------------------------------------------------------------------------------------- reasons


def _excluded(points: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The points by the rules that exclude them."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for point in points:
        rules = point.get("rules")
        groups.setdefault(tuple(map(str, rules)) if isinstance(rules, list) else (), []).append(point)
    parts: list[Part] = []
    for rules, found in sorted(groups.items(), key=lambda group: -len(group[1])):
        parts.append(
            el("h3", f"{count(len(found), 'point')}: ", together(el("code", rule) for rule in rules) or "facts alone")
        )
        parts += [el("p", prose(line.strip())) for line in str(found[0].get("text") or "").splitlines()]
        parts.append(details("the points", el("ul", *(el("li", el("code", _words(point))) for point in found))))
    return together(parts) if parts else None


def _words(point: Mapping[str, Any]) -> str:
    said = point.get("overrides")
    return " ".join(map(str, said)) if isinstance(said, list) else ""


def _reasons(jobs: Sequence[Job]) -> Markup | None:
    told = [job for job in jobs if job.reason]
    parts = [
        together(
            [
                el("h3", f"Job {job.number} ", pill(job.status, MOODS.get(job.status, ""))),
                el("p", el("code", " ".join(job.overrides))),
                el("pre", job.reason),
            ]
        )
        for job in told
    ]
    return together(parts) if parts else None


def _faults(sweep: SweepFiles) -> Markup | None:
    rows = [(el("code", fault.file), prose(fault.text)) for fault in sweep.faults]
    for status, run in sweep.jobs:
        done = status.get("status") == "completed"
        where = run.folder.relative_to(sweep.folder).as_posix()
        rows += [(el("code", f"{where}/{fault.file}"), prose(fault.text)) for fault in run.faults if done]
    return table(("file", "what is wrong"), rows, label="files that could not be shown", cls="cards") if rows else None
