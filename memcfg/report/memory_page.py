"""A prediction as one HTML file that needs nothing else: tables, and live memory through the step as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from markupsafe import Markup

from memcfg.planner.budget import Budget
from memcfg.planner.prediction import Prediction
from memcfg.report.memory import headline, verdict
from memcfg.report.pages.frame import Part, el, page, pill, prose, table, tiles, together
from memcfg.report.pages.memory import kinds, timeline
from memcfg.report.words import count, gib

MOODS = {"fits": "good", "close": "warn", "too large": "bad"}
PIECES = 20


def page_of(prediction: Prediction, budget: Budget | None) -> str:
    """The whole file."""
    title = f"memory of one step on {prediction.machine}"
    sections = [
        ("timeline", "Live memory through one step", drawing(prediction, budget)),
        ("peak", f"At the peak ({prediction.peak_phase})", kinds(prediction.kinds)),
        ("phases", "Peak in each phase", _phases(prediction)),
        ("largest", "Largest at the peak", _pieces(prediction)),
    ]
    shown = [(name, said, content) for name, said, content in sections if content]
    return page(title, _head(title, prediction, budget), shown)


def _head(title: str, prediction: Prediction, budget: Budget | None) -> Markup:
    said = None if budget is None else prediction.verdict(budget.bytes)
    names = {"close": "too close to call"}
    mark = None if said is None else pill(names.get(said, said), MOODS[said])
    told, _, *rows = headline(prediction)
    parts: list[Part] = [el("div", el("h1", title), mark, cls="headline"), el("p", told, cls="soft"),
                         *(el("p", prose(f"Reckoned with {text}"), cls="soft") for text in prediction.assumed),
                         el("p", prose(" ".join(verdict(prediction, budget))))]  # fmt: skip
    return together([*parts, tiles(_tile(row) for row in rows)])


def _tile(row: str) -> tuple[str, Part, Part]:
    """A line of the headline: name, size, what it is, two blanks or more between them."""
    name, size, what = (part for part in (part.strip() for part in row.split("  ")) if part)
    return name, size, what


def drawing(prediction: Prediction, budget: Budget | None) -> Markup | None:
    """The stacked areas, with a line at what the budget leaves inside the allocator."""
    limit = None if budget is None else budget.bytes - prediction.outside_bytes
    return timeline(
        asdict(prediction.timeline), [(limit, f"limit {gib(limit)}")] if limit is not None and limit > 0 else ()
    )


def _phases(prediction: Prediction) -> Markup:
    whole = max(1, prediction.allocated_bytes)
    rows = [(phase, gib(size), f"{size / whole:.1%}") for phase, size in prediction.phases.items()]
    return table(("phase", "peak", "share"), rows, label="peak in each phase", numbers=(1, 2), cls="narrow")


def _pieces(prediction: Prediction) -> Markup:
    return table(
        ("kind", "size", "how many", "made by", "in"), _rows(prediction), label="largest at the peak", numbers=(1,),
    )  # fmt: skip


def _rows(prediction: Prediction) -> Iterator[tuple[str, ...]]:
    for piece in prediction.peak[:PIECES]:
        yield piece.kind, gib(piece.bytes), count(piece.count, "tensor"), piece.op.removeprefix("aten::"), piece.phase
