"""`report.html` of a run: everything that its folder tells, on one page.

A section whose file is torn or holds something else than it should is left out, and the notes say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from markupsafe import Markup

from memcfg.report.pages import data, decisions, host, memory, training
from memcfg.report.pages.charts import finite
from memcfg.report.pages.frame import Part, el, page, pill, tiles, together
from memcfg.report.words import count, duration, gib
from memcfg.runfiles import RunFiles

STATUSES: Final = {
    "completed": ("completed", "good"), "failed": ("failed", "bad"), "interrupted": ("interrupted", "warn"),
    "running": ("not ended", "warn"), "": ("how it ended is not known", ""),
}  # fmt: skip
NOT_ENDED: Final = "It goes on, or it was killed: nothing was written at its end."

FOREIGN: Final = (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError)
"""What reading a file raises that holds something else than it should."""

Section = tuple[str, str, Markup]


@dataclass
class Page:
    """The sections as they come; `wrong`: files whose content could not be shown."""

    files: RunFiles
    sections: list[Section] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, title: str, file: str, make: Callable[[], Markup | None]) -> None:
        """Add a section, unless it has nothing to show."""
        try:
            content = make()
        except FOREIGN as error:
            self.wrong.append((file, f"holds something else than it should: {error}"))
        else:
            if content:
                self.sections.append((name, title, content))


def page_of(files: RunFiles) -> str:
    """The whole file."""
    made = sections(files)
    name = files.folder.resolve().name
    return page(f"{name} · memcfg run", head(files), made.sections)


def sections(files: RunFiles) -> Page:
    """Every section that has something to show, in order of interest."""
    made, plan, lines = Page(files), files.plan, files.metrics
    effective, ledger, report = (files.object(f"{name}.json") for name in ("effective", "ledger", "report"))
    shapes, journal = files.object("batches.json"), files.object("run.json")
    made.add("loss", "Loss", "metrics.jsonl", lambda: training.loss(lines))
    if plan is not None:
        made.add("decisions", "Decisions", "effective.json", lambda: decisions.decisions(plan, effective))
    made.add("data", "Tokens and rows", "ledger.json", lambda: data.ledger(ledger) if ledger else None)
    made.add("shapes", "Lengths and packing", "batches.json", lambda: data.shapes(shapes, finite(report.get("steps"))))
    made.add("speed", "Speed and gradients", "metrics.jsonl", lambda: training.speed(lines))
    made.add("metrics", "What the trainer logged", "metrics.jsonl", lambda: training.metrics(lines))
    remembered = files.object("memory.json")
    made.add("memory", "Memory", "memory.json", lambda: memory.memory(remembered) if remembered else None)
    canaries = report.get("canaries")
    made.add(
        "proof",
        "Proof",
        "report.json",
        lambda: decisions.proof(canaries if isinstance(canaries, Mapping) else {}, effective),
    )
    sampled = files.lines.get("completions.jsonl") or []
    made.add("completions", "Completions", "completions.jsonl", lambda: data.completions(sampled) if sampled else None)
    made.add("environment", "Environment", "run.json", lambda: host.host(journal, plan, str(files.folder)))
    faults = [*((fault.file, fault.text) for fault in files.faults), *made.wrong]
    said = decisions.notes(
        plan.notes if plan is not None else (), ledger if isinstance(ledger.get("notes"), list) else {}, faults
    )
    if said:
        made.sections.insert(0, ("notes", "Notes", said))
    return made


# --------------------------------------------------------------------------------------------------------------- head


def head(files: RunFiles) -> Markup:
    """Name, how it ended, and the numbers that one looks for first."""
    journal, report = files.object("run.json"), files.object("report.json")
    status = str(journal.get("status") or ("completed" if report else ""))
    said, mood = STATUSES.get(status, STATUSES[""])
    parts: list[Part] = [
        el("div", el("h1", files.folder.resolve().name), pill(said, mood), cls="headline"), el("p", _lead(files), cls="soft"),
    ]  # fmt: skip
    if status == "running":
        parts.append(el("p", NOT_ENDED))
    if journal.get("error"):
        parts.append(el("pre", str(journal["error"])))
    return together([*parts, tiles(_tiles(files))])


def _lead(files: RunFiles) -> str:
    plan, report = files.plan, files.object("report.json")
    trainer = plan.get("trainer.name") if plan is not None else None
    device = f"on {plan.device}" if plan is not None else ""
    seconds = finite(report.get("seconds"))
    took = f"in {duration(seconds)}" if seconds else ""
    steps = finite(report.get("steps"))
    return " ".join(
        filter(
            None, ("memcfg run:", str(trainer or "training"), device, count(int(steps), "step") if steps else "", took)
        )
    )


def _tiles(files: RunFiles) -> Iterator[tuple[str, Part, Part]]:
    report, ledger = files.object("report.json"), files.object("ledger.json")
    for name, key in (("loss", "loss"), ("held-out loss", "eval_loss")):
        points = training.series(files.metrics, key)
        if points:
            (_, first), (step, last) = points[0], points[-1]
            yield name, f"{last:.4g}", f"from {first:.4g}, at step {step:.0f}"
    before, after = finite(report.get("reward_first")), finite(report.get("reward_last"))
    if before is not None and after is not None:
        yield "reward", f"{after:.4g}", f"from {before:.4g}; means of a tenth of the steps"
    rate, peak = finite(report.get("tokens_per_second")), _peak(files)
    if rate:
        yield "speed", f"{rate:,.0f}", "tokens per second"
    if peak:
        yield "peak memory", gib(peak[0]), peak[1]
    fill, lost = (
        finite(ledger.get("fill")),
        data.number(ledger, "tokens_truncated") + data.number(ledger, "tokens_dropped"),
    )
    if fill is not None:
        yield "fill of rows", f"{100 * fill:.1f} %", f"{lost:,} tokens lost" if lost else "no token lost"


def _peak(files: RunFiles) -> tuple[float, str] | None:
    measured: Any = files.object("memory.json").get("measured")
    size = finite(measured.get("peak_bytes")) if isinstance(measured, Mapping) else None
    return (
        None
        if not size
        else (size, "of GPU memory allocated" if "cuda" in str(measured.get("source")) else "resident in the process")
    )
