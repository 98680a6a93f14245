"""A profile as one HTML file that needs nothing else, and as a PNG."""

from __future__ import annotations

import io
from collections.abc import Iterator
from html import escape
from typing import Any

from memcfg import Problem, RunError
from memcfg.report.words import count, gib
from memcfg_packing.lengths.profile import Profile
from memcfg_packing.lengths.text import cells

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 360, 60, 46
BLUE, ORANGE, RED = "#4e79a7", "#f28e2b", "#e15759"
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 980px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .2rem 1.2rem .2rem 0; text-align: right; font-variant-numeric: tabular-nums; }
tr.best td { font-weight: bold; }
svg { width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
"""
TITLES = ("max_length", "tokens lost", "documents cut", "padding", "bfd rows", "fill", "bfd_split rows", "fill")


def page(profile: Profile) -> str:
    """The whole file."""
    title = f"lengths of {count(profile.documents, 'document')}"
    said = escape(profile.reason).replace("`", "")
    body = [
        f"<h1>{title}</h1>",
        f"<p><strong>truncation.max_length={profile.recommended}</strong>: {said}.</p>",
        "<h2>Distribution</h2>", *drawing(profile),
        f'<p><span style="color:{BLUE}">&#9632;</span> documents <span style="color:{ORANGE}">&#9632;</span> tokens in '
        "documents of at most this length</p>",
        "<h2>Candidates</h2>", *_table(profile),
        f"<p>Padding is that of shuffled batches of {profile.batch}. Tokens are lost with <code>packing=bfd</code> and without "
        "packing; <code>packing=bfd_split</code> loses none.</p>",
    ]  # fmt: skip
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head>'
    return "\n".join([head, "<body>", *body, "</body></html>", ""])


def drawing(profile: Profile) -> Iterator[str]:
    """Bars of documents, a line of the tokens up to each length, and the recommended length."""
    bins, most = profile.bins, max(documents for _, _, documents, _ in profile.bins)
    step = (WIDTH - LEFT) / len(bins)
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="documents by length">'
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(share)
        yield f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
    points, seen = [], 0
    for number, (first, last, documents, tokens) in enumerate(bins):
        x, y = LEFT + number * step, _y(documents / most)
        told = f"{first:,} to {last:,} tokens: {documents:,} documents ({documents / profile.documents:.1%})"
        yield f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{step - 2:.1f}" height="{HEIGHT - BOTTOM - y:.1f}" fill="{BLUE}"><title>{told}</title></rect>'
        seen += tokens
        points.append(f"{x + step:.1f},{_y(seen / profile.tokens):.1f}")
        if number % 3 == 0:
            yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}">{first:,}</text>'
        if first <= profile.recommended <= last or (number == len(bins) - 1 and profile.recommended > last):
            yield f'<line x1="{x + step:.1f}" x2="{x + step:.1f}" y1="0" y2="{HEIGHT - BOTTOM}" stroke="{RED}" stroke-dasharray="6 4"/>'
    yield f'<polyline points="{LEFT},{_y(0):.1f} {" ".join(points)}" fill="none" stroke="{ORANGE}" stroke-width="2"/>'
    yield f'<text x="{WIDTH}" y="{HEIGHT - 8}" text-anchor="end">tokens in a document; dashed: the recommended length</text></svg>'


def _y(share: float) -> float:
    return 6 + (HEIGHT - BOTTOM - 6) * (1 - share)


def _table(profile: Profile) -> Iterator[str]:
    memory = any(c.memory is not None for c in profile.candidates)
    titles = [*TITLES, *(["peak memory"] if memory else [])]
    yield "<table><tr>" + "".join(f"<th>{title}</th>" for title in titles) + "</tr>"
    for found in profile.candidates:
        more = [gib(found.memory) if found.memory is not None else ""] if memory else []
        row = "".join(f"<td>{escape(cell)}</td>" for cell in [*cells(found), *more])
        yield f"<tr{' class=best' if found.length == profile.recommended else ''}>{row}</tr>"
    yield "</table>"


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
