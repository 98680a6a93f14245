"""A profile as one HTML file that needs nothing else, and as a PNG."""

from __future__ import annotations

import io
from typing import Any

from memcfg import Problem, RunError
from memcfg.report.pages.charts import swatch
from memcfg.report.pages.data import length_bars
from memcfg.report.pages.frame import Part, el, page, prose, table, together
from memcfg.report.words import count, gib
from memcfg_packing.lengths.profile import Profile
from memcfg_packing.lengths.text import cells

BLUE, RED = "#4e79a7", "#e15759"
TITLES = ("max_length", "tokens lost", "documents cut", "padding", "bfd rows", "fill", "bfd_split rows", "fill")


def page_of(profile: Profile) -> str:
    """The whole file."""
    title = f"lengths of {count(profile.documents, 'document')}"
    head = together([
        el("h1", title), el("p", el("code", f"truncation.max_length={profile.recommended}"), ": ", prose(profile.reason), "."),
    ])  # fmt: skip
    sections = [
        ("distribution", "Distribution", _distribution(profile)),
        ("candidates", "Candidates", _candidates(profile)),
    ]
    return page(title, head, sections)


def _distribution(profile: Profile) -> Part:
    keys = [(swatch(0), "documents"), (swatch(1), "share of the tokens in documents up to this length")]
    legend = el(
        "ul",
        *(el("li", square, said) for square, said in keys),
        el("li", "dashed: the recommended length"),
        cls="legend",
    )
    return together([legend, length_bars(profile.bins, "documents by length", profile.recommended)])


def _candidates(profile: Profile) -> Part:
    memory = any(c.memory is not None for c in profile.candidates)
    titles = [*TITLES, *(["peak memory"] if memory else [])]
    rows = [
        [*cells(found), *([gib(found.memory) if found.memory is not None else ""] if memory else [])]
        for found in profile.candidates
    ]
    best = [i for i, found in enumerate(profile.candidates) if found.length == profile.recommended]
    told = (
        f"Padding is that of shuffled batches of {profile.batch}. Tokens are lost with `packing=bfd` and without packing; "
        "`packing=bfd_split` loses none."
    )
    made = table(titles, rows, label="candidates", numbers=range(len(titles)), best=best)
    return together([made, el("p", prose(told), cls="soft")])


def png(profile: Profile) -> bytes:
    """The distribution as a picture. Raises `RunError` where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        fix = 'pip install "memcfg[plots]", or `--html FILE`, which needs nothing'
        problem = Problem("drawing a PNG needs matplotlib, which is not installed", key="--png", fix=fix)
        raise RunError(problem) from error
    figure: Any = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    edges = [first for first, *_ in profile.bins] + [profile.bins[-1][1] + 1]
    axes.stairs([documents for _, _, documents, _ in profile.bins], edges, fill=True, color=BLUE)
    axes.axvline(profile.recommended, color=RED, linestyle="--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("tokens in a document")
    axes.set_ylabel("documents")
    axes.set_title(
        f"{count(profile.documents, 'document')}; recommended max_length {profile.recommended:,}", loc="left"
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
