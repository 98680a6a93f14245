"""Pictures as inline SVG, drawn by hand: curves, bars, strips, stacked areas.

No plotting library: a run must not need one to tell how it went, one picture of matplotlib's is larger than the whole page,
and its lines could neither be followed with a finger nor turn light in the dark. Text keeps its size however wide the page
is: positions along x are shares of the width, heights are pixels, and curves are stretched without their strokes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from memcfg.report.pages.frame import details, el, table

HEIGHT: Final = 200
WIDE: Final = 1000
"""Units across a stretched picture."""
LINES: Final = 4
MOST_POINTS: Final = 400
"""Points of a curve beyond which stretches are told by their lowest and highest."""
MOST_ROWS: Final = 40
HUES: Final = 8

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """Named points, x ascending. `hue`: which colour of the page."""

    name: str
    points: Sequence[Point]
    hue: int = 0
    dashed: bool = False


def short(number: float) -> str:
    """A number on an axis."""
    if number == 0:
        return "0"
    size = abs(number)
    if size >= 1e6 or size < 1e-3:
        mantissa, _, exponent = f"{number:.1e}".partition("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    return f"{number:,.0f}" if size >= 1000 else f"{number:.4g}"


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most about `most` points, the lowest and the highest of every stretch among them."""
    if len(points) <= most:
        return list(points)
    stretch = math.ceil(2 * len(points) / most)
    found: list[Point] = []
    for begin in range(0, len(points), stretch):
        part = points[begin : begin + stretch]
        found += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return [points[0], *(p for p in found if p not in (points[0], points[-1])), points[-1]]


# --------------------------------------------------------------------------------------------------------------- curves


def curves(title: str, lines: Sequence[Curve], *, x: str = "step", said: bool = True) -> Markup | None:
    """A figure of curves over one axis; None where no curve has a point. The numbers stand below on demand. `said`: the
    title stands above it."""
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    thin = [thinned(line.points) for line in lines]
    x0, x1 = min(p[0][0] for p in thin), max(p[-1][0] for p in thin)
    lo, hi = _span([y for points in thin for _, y in points])
    data = {"x": x, "x0": x0, "x1": x1, "lo": lo, "hi": hi, "height": HEIGHT, "lines": thin}
    drawn = [_curve(line, points, (x0, x1), (lo, hi)) for line, points in zip(lines, thin, strict=True)]
    stretched = el(
        "svg", *drawn, viewBox=f"0 0 {WIDE} {HEIGHT}", preserveAspectRatio="none", width="100%", height=HEIGHT
    )
    cursor = el("line", cls="axis cursor", x1="100%", x2="100%", y1=0, y2=HEIGHT)
    dots = [
        el("circle", cls=f"dot f{line.hue}", r=4, cx=_share(p[-1][0], x0, x1), cy=_y(p[-1][1], lo, hi))
        for line, p in zip(lines, thin, strict=True)
    ]
    plot = el(
        "svg", el("title", described(title, lines, x)), *_grid(lo, hi), stretched, cursor, *dots, cls="plot", height=HEIGHT, role="img",
        tabindex="0", aria_label=described(title, lines, x),
    )  # fmt: skip
    chart = el("div", _heights(lo, hi), plot, el("span"), _steps(x0, x1, x), cls="chart")
    caption = el("figcaption", el("b", title)) if said else None
    return el("figure", caption, _legend(lines, x), chart, _numbers(title, lines, x), data_chart=json.dumps(data))


def described(title: str, lines: Sequence[Curve], x: str) -> str:
    """What a picture of curves shows, in words."""
    told = (
        f"{line.name} from {short(line.points[0][1])} at {x} {short(line.points[0][0])} to {short(line.points[-1][1])} at {x} {short(line.points[-1][0])}"
        for line in lines
    )
    return f"{title}: {'; '.join(told)}"


def _curve(line: Curve, points: Sequence[Point], across: Point, up: Point) -> Markup:
    at = [(WIDE * _part(x, *across), _y(y, *up)) for x, y in points]
    if len(at) == 1:
        at = [(0.0, at[0][1]), (float(WIDE), at[0][1])] if across[0] == across[1] else [at[0], at[0]]
    path = "M" + " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    return el("path", d=path, cls=f"curve s{line.hue}{' dashed' if line.dashed else ''}")


def _legend(lines: Sequence[Curve], x: str) -> Markup:
    items = (el("li", swatch(line.hue), f"{line.name} ", el("output", short(line.points[-1][1]))) for line in lines)
    last = max(line.points[-1][0] for line in lines)
    return el("ul", *items, el("li", el("span", f"{x} {short(last)}", cls="where")), cls="legend")


def swatch(hue: int | None = None, color: str | None = None) -> Markup:
    """A small square of a colour."""
    square = el("rect", width=10, height=10, rx=2, cls=None if hue is None else f"f{hue}", fill=color)
    return el("svg", square, viewBox="0 0 10 10", cls="swatch", aria_hidden="true")


def _numbers(title: str, lines: Sequence[Curve], x: str) -> Markup:
    """The numbers behind the curves, evenly chosen where there are many."""
    known = [dict(line.points) for line in lines]
    stops = sorted({at for points in known for at in points})
    chosen = (
        stops
        if len(stops) <= MOST_ROWS
        else [stops[round(i * (len(stops) - 1) / (MOST_ROWS - 1))] for i in range(MOST_ROWS)]
    )
    rows = [
        [short(at), *(short(points[at]) if at in points else "" for points in known)] for at in dict.fromkeys(chosen)
    ]
    names = [x, *(line.name for line in lines)]
    return details("numbers", table(names, rows, label=f"{title}, numbers", numbers=range(len(names)), cls="narrow"))


# ----------------------------------------------------------------------------------------------------- bars and strips


@dataclass(frozen=True)
class Bar:
    """`size` is drawn, `told` is said of it; `left` and `width` are shares of the whole width."""

    left: float
    width: float
    size: float
    told: str


def bars(
    title: str, found: Sequence[Bar], ticks: Iterable[tuple[float, str]], *, hue: int = 0, overlay: Sequence[Point] = (),
    mark: float | None = None, x: str = "", form: Callable[[float], str] = short,
) -> Markup:  # fmt: skip
    """A histogram. `ticks`: names along x by share of the width; `overlay`: a curve of `(share of the width, share of the
    height)` over the bars; `mark`: a dashed line at a share of the width."""
    top = _span([0, max((bar.size for bar in found), default=0) or 1], least=1)[1]
    drawn = []
    for bar in found:
        high = HEIGHT * bar.size / top
        shape = el(
            "rect",
            x=_percent(bar.left),
            width=_percent(max(bar.width - 0.002, 0.001)),
            y=f"{HEIGHT - high:.1f}",
            height=f"{high:.1f}",
            cls=f"f{hue}",
        )
        drawn.append(titled(shape, bar.told))
    over = []
    if overlay:
        path = "M" + " ".join(f"{WIDE * left:.1f},{HEIGHT * (1 - high):.1f}" for left, high in overlay)
        curve = el("path", d=path, cls="curve s1")
        over.append(
            el("svg", curve, viewBox=f"0 0 {WIDE} {HEIGHT}", preserveAspectRatio="none", width="100%", height=HEIGHT)
        )
    if mark is not None:
        over.append(el("line", cls="mark", x1=_percent(mark), x2=_percent(mark), y1=0, y2=HEIGHT))
    plot = el("svg", *_grid(0, top), *drawn, *over, height=HEIGHT, role="img", aria_label=title)
    return el("div", _heights(0, top, form), plot, el("span"), axis(ticks, x), cls="chart")


def titled(shape: Markup, told: str) -> Markup:
    """A shape with words that show when it is pointed at."""
    return el("g", el("title", told), shape)


def strip(parts: Sequence[tuple[str, float, str]], label: str, height: int = 26) -> Markup:
    """One bar in parts: `(what is said of it, size, class)`."""
    total = sum(size for _, size, _ in parts) or 1
    drawn, left = [], 0.0
    for told, size, cls in parts:
        if size > 0:
            shape = el("rect", x=_percent(left), width=_percent(max(size / total, 0.002)), y=0, height=height, cls=cls)
            drawn.append(titled(shape, told))
        left += size / total
    return el("svg", *drawn, width="100%", height=height, role="img", aria_label=label)


def areas(
    title: str, x: Sequence[float], stacked: Mapping[str, Sequence[float]], colors: Mapping[str, str], end: float, top: float, *,
    marks: Iterable[tuple[float, str]] = (), begins: Iterable[tuple[float, str]] = (), form: Callable[[float], str] = short,
    unit: str = "",
) -> Markup:  # fmt: skip
    """Sizes stacked over `x`, each kept until the next. `marks`: dashed lines at a height; `begins`: names along x where
    something begins."""
    below, shapes = [0.0] * len(x), []
    for kind, sizes in stacked.items():
        above = [low + size for low, size in zip(below, sizes, strict=True)]
        outline = [*_held(x, above, end, top), *reversed(list(_held(x, below, end, top)))]
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in outline)
        shapes.append(
            titled(el("polygon", points=points, fill=colors.get(kind, "#888")), f"{kind}: at most {form(max(sizes))}")
        )
        below = above
    stretched = el(
        "svg", *shapes, viewBox=f"0 0 {WIDE} {HEIGHT}", preserveAspectRatio="none", width="100%", height=HEIGHT
    )
    lines = [part for size, said in marks if 0 < size <= top for part in _mark(size, said, top)]
    starts = list(begins)
    dotted = [
        el("line", cls="begin", x1=_share(at, 0, end), x2=_share(at, 0, end), y1=0, y2=HEIGHT) for at, _ in starts
    ]
    plot = el("svg", *_grid(0, top), stretched, *dotted, *lines, height=HEIGHT, role="img", aria_label=title)
    names = [(_part(at, 0, end), said) for at, said in starts]
    return el("div", _heights(0, top, form), plot, el("span"), axis(names, unit, starts=True), cls="chart")


def _mark(size: float, said: str, top: float) -> Iterator[Markup]:
    y = _y(size, 0, top)
    yield el("line", cls="mark", x1=0, x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}")
    yield el("text", said, x="100%", y=f"{y - 4:.1f}" if y > 16 else f"{y + 14:.1f}", text_anchor="end", cls="over")


def _held(x: Sequence[float], sizes: Sequence[float], end: float, top: float) -> Iterator[Point]:
    for i, size in enumerate(sizes):
        following = x[i + 1] if i + 1 < len(x) else end
        yield WIDE * _part(x[i], 0, end), _y(size, 0, top)
        yield WIDE * _part(following, 0, end), _y(size, 0, top)


# ---------------------------------------------------------------------------------------------------------------- axes


def axis(ticks: Iterable[tuple[float, str]], unit: str = "", *, starts: bool = False) -> Markup:
    """Names below a picture, by share of its width; `starts`: each begins where it stands, in two rows."""
    drawn = []
    for number, (share, said) in enumerate(ticks):
        anchor = "end" if share > (0.85 if starts else 0.96) else "start" if starts or share < 0.04 else "middle"
        drawn.append(el("text", said, x=_percent(share), y=15 + 14 * (number % 2 if starts else 0), text_anchor=anchor))
    height = 20 + 14 * starts
    more = [el("text", unit, x="100%", y=height + 12, text_anchor="end")] if unit else []
    return el("svg", *drawn, *more, height=height + (16 if unit else 0), aria_hidden="true")


def _steps(x0: float, x1: float, x: str) -> Markup:
    if x0 == x1:
        return axis([(0.5, short(x0))], x)
    whole = all(float(at).is_integer() for at in (x0, x1))
    found = [x0 + (x1 - x0) * i / LINES for i in range(LINES + 1)]
    found = list(dict.fromkeys(round(at) for at in found)) if whole else found
    return axis([(_part(at, x0, x1), short(at)) for at in found], x)


def _heights(lo: float, hi: float, form: Callable[[float], str] = short) -> Markup:
    texts = (
        el("text", form(at), x="100%", dx=-8, y=f"{_y(at, lo, hi) + 4:.1f}", text_anchor="end")
        for at in (lo + (hi - lo) * i / LINES for i in range(LINES + 1))
    )
    return el("svg", *texts, height=HEIGHT, aria_hidden="true")


def _grid(lo: float, hi: float) -> Iterator[Markup]:
    for i in range(LINES + 1):
        y = f"{HEIGHT * i / LINES:.1f}"
        yield el("line", cls="grid", x1=0, x2="100%", y1=y, y2=y)


def _span(values: Sequence[float], least: float = 0.0) -> tuple[float, float]:
    """Round bounds around values, `LINES` even steps of `least` or more apart."""
    lo, hi = min(values), max(values)
    if lo == hi:
        lo, hi = (lo - abs(lo) * 0.1, hi + abs(hi) * 0.1) if lo else (-1.0, 1.0)
    if 0 < lo < 0.4 * hi:
        lo = 0.0
    step = max(least, _nice((hi - lo) / LINES))
    low = math.floor(lo / step) * step
    while low + LINES * step < hi:
        step = _nice(step * 1.01)
        low = math.floor(lo / step) * step
    return low, low + LINES * step


def _nice(step: float) -> float:
    """The next round number."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(unit * power for unit in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if unit * power >= step * (1 - 1e-9))


def _part(at: float, start: float, end: float) -> float:
    return (at - start) / (end - start) if end > start else 0.5


def _share(at: float, start: float, end: float) -> str:
    return _percent(_part(at, start, end))


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def _y(size: float, lo: float, hi: float) -> float:
    return HEIGHT * (1 - (size - lo) / ((hi - lo) or 1))


def finite(value: Any) -> float | None:
    """A number that can be drawn, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
