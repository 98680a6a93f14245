"""A prediction as one HTML file that needs nothing else: tables, and live memory through the step as an SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from memcfg.planner.budget import Budget
from memcfg.planner.prediction import Prediction, Timeline
from memcfg.report.memory import COLORS, headline, verdict
from memcfg.report.words import GIB, count, gib

WIDTH: Final = 960
HEIGHT: Final = 360
LEFT: Final = 70
BOTTOM: Final = 40
LINES: Final = 4

STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 980px; margin: 2rem auto; padding: 0 1rem; }
pre { font: 13px/1.5 ui-monospace, monospace; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .2rem .9rem .2rem 0; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
i.k { display: inline-block; width: .8em; height: .8em; margin-right: .5em; }
svg { width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
"""


def page(prediction: Prediction, budget: Budget | None) -> str:
    """The whole file."""
    title = f"memory of one step on {escape(prediction.machine)}"
    body = [
        f"<h1>{title}</h1>", f"<p><strong>{escape(' '.join(verdict(prediction, budget)))}</strong></p>",
        f"<pre>{escape(chr(10).join(headline(prediction)))}</pre>",
        "<h2>Live memory through one step</h2>", *drawing(prediction, budget),
        f"<h2>At the peak ({escape(prediction.peak_phase)})</h2>", *_kinds(prediction),
        "<h2>Peak in each phase</h2>", *_phases(prediction), "<h2>Largest at the peak</h2>", *_pieces(prediction),
    ]  # fmt: skip
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head>'
    return "\n".join([head, "<body>", *body, "</body></html>", ""])


def drawing(prediction: Prediction, budget: Budget | None) -> Iterator[str]:
    """The stacked areas, with a line at what the budget leaves inside the allocator."""
    line = prediction.timeline
    if not line.ms:
        return
    limit = None if budget is None else budget.bytes - prediction.outside_bytes
    highest = max(sum(sizes[i] for sizes in line.kinds.values()) for i in range(len(line.ms)))
    top = 1.05 * (max(highest, limit) if limit is not None and limit < 1.5 * highest else highest)
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="live memory by kind through one step">'
    yield from _scale(top)
    yield from _areas(line, top)
    yield from _begins(line)
    if limit is not None and 0 < limit <= top:
        yield f'<line x1="{LEFT}" x2="{WIDTH}" y1="{_y(limit, top):.1f}" y2="{_y(limit, top):.1f}" stroke="#e15759" stroke-dasharray="6 4"/>'
        yield f'<text x="{WIDTH - 4}" y="{_y(limit, top) - 5:.1f}" text-anchor="end">limit</text>'
    yield "</svg>"


def _scale(top: float) -> Iterator[str]:
    for i in range(LINES + 1):
        size = top * i / LINES
        yield f'<line x1="{LEFT}" x2="{WIDTH}" y1="{_y(size, top):.1f}" y2="{_y(size, top):.1f}" stroke="#8884"/>'
        yield f'<text x="{LEFT - 8}" y="{_y(size, top) + 4:.1f}" text-anchor="end">{size / GIB:.3g} GiB</text>'


def _areas(line: Timeline, top: float) -> Iterator[str]:
    """One polygon for each kind, on top of those before it. Between samples the memory stays what it was."""
    below = [0] * len(line.ms)
    for kind, sizes in line.kinds.items():
        above = [low + size for low, size in zip(below, sizes, strict=True)]
        outline = [*_steps(line, above, top), *reversed(list(_steps(line, below, top)))]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
        most = max(sizes)
        yield f'<polygon points="{points}" fill="{COLORS[kind]}"><title>{kind}: at most {gib(most)}</title></polygon>'
        below = above


def _steps(line: Timeline, sizes: list[int], top: float) -> Iterator[tuple[float, float]]:
    end = _end(line)
    for i, size in enumerate(sizes):
        following = line.ms[i + 1] if i + 1 < len(line.ms) else end
        yield _x(line.ms[i], end), _y(size, top)
        yield _x(following, end), _y(size, top)


def _begins(line: Timeline) -> Iterator[str]:
    end = _end(line)
    for ms, phase in line.phases:
        x = _x(ms, end)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT - BOTTOM}" stroke="#888" stroke-dasharray="2 3"/>'
        yield f'<text x="{x + 3:.1f}" y="{HEIGHT - BOTTOM + 16}">{escape(phase)}</text>'
    yield f'<text x="{WIDTH}" y="{HEIGHT - 6}" text-anchor="end">about {end:.0f} ms</text>'


def _end(line: Timeline) -> float:
    return max(line.ms[-1] * (1 + 1 / len(line.ms)), 1e-9)


def _x(ms: float, end: float) -> float:
    return LEFT + (WIDTH - LEFT) * ms / end


def _y(size: float, top: float) -> float:
    return (HEIGHT - BOTTOM) * (1 - size / top)


def _kinds(prediction: Prediction) -> Iterator[str]:
    yield "<table>"
    for kind, size in prediction.kinds.items():
        swatch = f'<i class="k" style="background:{COLORS[kind]}"></i>'
        yield f'<tr><td>{swatch}{kind}</td><td class="n">{gib(size)}</td><td class="n">{_share(size, prediction)}</td></tr>'
    yield "</table>"


def _phases(prediction: Prediction) -> Iterator[str]:
    yield "<table>"
    for phase, size in prediction.phases.items():
        yield f'<tr><td>{phase}</td><td class="n">{gib(size)}</td><td class="n">{_share(size, prediction)}</td></tr>'
    yield "</table>"


def _pieces(prediction: Prediction) -> Iterator[str]:
    yield "<table>"
    for piece in prediction.peak[:20]:
        cells = (piece.kind, count(piece.count, "tensor"), escape(piece.op), f"made in {piece.phase}")
        yield f'<tr><td class="n">{gib(piece.bytes)}</td>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
    yield "</table>"


def _share(size: int, prediction: Prediction) -> str:
    return f"{size / max(1, prediction.allocated_bytes):.1%}"
