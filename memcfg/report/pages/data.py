"""What became of the data: the ledger, the shapes of documents and rows, sampled completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from memcfg.report.pages.charts import Bar, bars, finite, strip, swatch, titled
from memcfg.report.pages.frame import Part, details, el, prose, table, together
from memcfg.report.words import count, value

Object = Mapping[str, Any]

ROWS: Final = (
    ("rows_in", "rows read"), ("rows_dropped", "rows dropped"), ("tokens_in", "tokens read"), ("tokens_kept", "tokens kept"),
    ("tokens_truncated", "tokens cut off"), ("tokens_dropped", "tokens in dropped rows"), ("tokens_supervised", "tokens learned from"),
    ("bins", "packed rows"), ("tokens_seen", "tokens trained on"), ("tokens_padded", "padding in between"),
)  # fmt: skip
LENGTH: Final = 90
SHOWN: Final = 200
"""Completions on a page."""
MOST: Final = 4_000
"""Characters of a cell."""


def number(data: Object, key: str) -> int:
    found = finite(data.get(key))
    return 0 if found is None else int(found)


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


# ------------------------------------------------------------------------------------------------------------- ledger


def ledger(data: Object) -> Markup:
    """Where the tokens went, as pictures and as a table; why rows were dropped."""
    held = data.get("eval") if isinstance(data.get("eval"), Mapping) else None
    parts: list[Part] = [_flow(data), _padding(data)]
    heads = ["", "training", *(["held-out"] if held is not None else [])]
    rows = [[said, *(f"{number(side, key):,}" for side in (data, held) if side is not None)] for key, said in ROWS]
    rows.append(["fill of rows", *(_fill(side) for side in (data, held) if side is not None)])
    parts.append(table(heads, rows, label="ledger", numbers=(1, 2), cls="narrow"))
    return together([*parts, *_reasons(data, "training"), *(_reasons(held, "held-out") if held is not None else ())])


def _fill(side: Object) -> str:
    fill = finite(side.get("fill"))
    return "" if fill is None else f"{100 * fill:.2f} %"


def _flow(data: Object) -> Part:
    total = number(data, "tokens_in")
    if not total:
        return None
    learned = min(number(data, "tokens_supervised"), number(data, "tokens_kept"))
    parts = [
        ("learned from", learned, "f2"), ("kept as context", number(data, "tokens_kept") - learned, "f0"),
        ("cut off", number(data, "tokens_truncated"), "f1"), ("dropped with their rows", number(data, "tokens_dropped"), "f4"),
    ]  # fmt: skip
    return _strip(f"Of {total:,} tokens read", parts, total)


def _padding(data: Object) -> Part:
    seen, padded = number(data, "tokens_seen"), number(data, "tokens_padded")
    parts = [("tokens", seen, "f0"), ("padding", padded, "void")]
    return _strip(f"Of {seen + padded:,} positions trained on", parts, seen + padded) if seen + padded else None


def _strip(title: str, parts: Sequence[tuple[str, int, str]], total: int) -> Markup:
    told = [(f"{name}: {size:,} ({percent(size, total)})", float(size), cls) for name, size, cls in parts]
    items = (
        el("li", _square(cls), f"{name} ", el("strong", f"{size:,}"), f" {percent(size, total)}")
        for name, size, cls in parts
        if size
    )
    label = f"{title}: {'; '.join(said for said, size, _ in told if size)}"
    return el("figure", el("figcaption", el("b", title)), el("ul", *items, cls="legend"), strip(told, label))


def _square(cls: str) -> Markup:
    return (
        swatch(int(cls[1]))
        if cls != "void"
        else el(
            "svg", el("rect", width=10, height=10, cls="void"), viewBox="0 0 10 10", cls="swatch", aria_hidden="true"
        )
    )


def _reasons(data: Object, side: str) -> Iterator[Part]:
    reasons = data.get("reasons")
    if isinstance(reasons, Mapping) and reasons:
        rows = [(prose(why), f"{number(reasons, why):,}") for why in reasons]
        yield el("h3", f"Why {side} rows were dropped")
        yield table(("reason", "rows"), rows, label=f"dropped {side} rows", numbers=(1,), cls="narrow")


# ------------------------------------------------------------------------------------------------------------- shapes


def shapes(data: Object, steps: float | None = None) -> Markup | None:
    """How long documents were, how full rows were, and the first rows as they lay. `steps`: those of the whole run, of which
    a run that was gone on with has seen the last."""
    found = [figure for figure in (_lengths(data), _filled(data)) if figure is not None]
    if not found:
        return None
    told = (
        f"Seen while training: {count(number(data, 'documents'), 'document')} in {count(number(data, 'rows'), 'row')} over "
        f"{count(number(data, 'steps'), 'step')}"
    )
    told += f", the last of {steps:,.0f}." if steps and steps > number(data, "steps") else "."
    return together([el("p", told, cls="soft"), el("div", *found, cls="charts"), _first(data)])


def length_bars(bins: Sequence[Sequence[int]], title: str, mark: int | None = None) -> Markup:
    """Documents by length, with a line of the tokens in documents of at most each length; `mark`: a length to stand out.
    `bins` as in `memcfg.histogram`."""
    documents, tokens = sum(b[2] for b in bins) or 1, sum(b[3] for b in bins) or 1
    width, found, line, seen, at = 1 / len(bins), [], [(0.0, 0.0)], 0, None
    for i, (first, last, many, held) in enumerate(bins):
        span = f"{first:,} to {last:,}" if last > first else f"{first:,}"
        found.append(
            Bar(i * width, width, many, f"{span} tokens: {count(many, 'document')} ({percent(many, documents)})")
        )
        seen += held
        line.append(((i + 1) * width, seen / tokens))
        if mark is not None and (first <= mark <= last or (i == len(bins) - 1 and mark > last)):
            at = (i + 1) * width
    step = max(1, len(bins) // 5)
    ticks = [((i + 0.5) * width, f"{bins[i][0]:,}") for i in range(0, len(bins), step)]
    return bars(title, found, ticks, overlay=line, mark=at, x="tokens in a document")


def _bins(data: Object) -> list[list[int]]:
    rows = [[finite(cell) for cell in row] for row in data.get("bins") or () if isinstance(row, (list, tuple))]
    return [[int(cell) for cell in row if cell is not None] for row in rows if len(row) == 4 and None not in row]


def _lengths(data: Object) -> Markup | None:
    bins = _bins(data)
    if not bins:
        return None
    title = "Documents by length"
    keys = el(
        "ul",
        el("li", swatch(0), "documents"),
        el("li", swatch(1), "share of the tokens in documents up to this length"),
        cls="legend",
    )
    rows = [(f"{a:,} to {b:,}", f"{many:,}", f"{held:,}") for a, b, many, held in bins if many]
    numbers = table(
        ("tokens", "documents", "tokens in them"), rows, label="documents by length", numbers=(0, 1, 2), cls="narrow"
    )
    return el("figure", el("figcaption", el("b", title)), keys, length_bars(bins, title), details("numbers", numbers))


def _filled(data: Object) -> Markup | None:
    counts = [finite(n) or 0.0 for n in data.get("filled") or ()]
    if not sum(counts):
        return None
    width, total = 1 / len(counts), sum(counts)
    named = [f"{100 * i * width:.0f} to {100 * (i + 1) * width:.0f} % filled" for i in range(len(counts))]
    found = [
        Bar(i * width, width, n, f"{said}: {count(int(n), 'row')} ({percent(n, total)})")
        for i, (n, said) in enumerate(zip(counts, named, strict=True))
    ]
    title, ticks = "Rows by how full they were", [(i / 4, f"{25 * i} %") for i in range(5)]
    rows = [(said, f"{int(n):,}") for said, n in zip(named, counts, strict=True) if n]
    numbers = table(("share of tokens", "rows"), rows, label="rows by fill", numbers=(1,), cls="narrow")
    picture = bars(title, found, ticks, hue=2, x="positions of a row that hold a token")
    return el("figure", el("figcaption", el("b", title)), picture, details("numbers", numbers))


def _first(data: Object) -> Markup | None:
    """The first step's rows: each document a piece, padding empty."""
    rows = [(int(width), [int(n) for n in row]) for width, row in data.get("first") or () if width]
    if not rows:
        return None
    widest, high, gap = max(width for width, _ in rows), 12, 4
    drawn: list[Part] = []
    for i, (width, row) in enumerate(rows):
        y, left = i * (high + gap), 0
        drawn.append(el("rect", x=0, y=y, width=f"{100 * width / widest:.3f}%", height=high, cls="void"))
        for number_, length in enumerate(row):
            piece = el(
                "rect",
                x=f"{100 * left / widest:.3f}%",
                y=y,
                width=f"{100 * length / widest:.3f}%",
                height=high,
                cls=f"f{number_ % 2 * 5}",
            )
            drawn.append(titled(piece, f"row {i + 1}, document {number_ + 1} of {len(row)}: {count(length, 'token')}"))
            left += length
    held = sum(map(sum, (row for _, row in rows)))
    label = f"{count(len(rows), 'row')} of the first step, {count(sum(len(row) for _, row in rows), 'document')}, {percent(held, sum(w for w, _ in rows))} filled"
    picture = el("svg", *drawn, width="100%", height=len(rows) * (high + gap), role="img", aria_label=label)
    note = el("span", f"{label}; documents alternate in colour, padding is empty", cls="soft")
    return el("figure", el("figcaption", el("b", "The first rows"), " ", note), el("div", picture, cls="chart bare"))


# -------------------------------------------------------------------------------------------------------- completions


def completions(lines: Sequence[Object]) -> Markup:
    """What was sampled, the latest first, as far as there is room."""
    chosen = [_flat(line) for line in list(reversed(lines))[:SHOWN]]
    keys = list(dict.fromkeys(key for line in chosen for key in line))
    texts = [key for key in keys if any(isinstance(line.get(key), str) and len(line[key]) > 20 for line in chosen)]
    order = [
        *(key for key in keys if key == "step"),
        *texts,
        *(key for key in keys if key not in texts and key != "step"),
    ]
    numbers = [
        i for i, key in enumerate(order) if all(finite(line.get(key)) is not None for line in chosen if key in line)
    ]
    rows = [[_completion(line.get(key)) for key in order] for line in chosen]
    said = f"{count(len(lines), 'completion')}" + (f", the last {SHOWN} here" if len(lines) > SHOWN else "")
    return together([el("p", said, cls="soft"), table(order, rows, label="completions", numbers=numbers)])


def _flat(line: Object) -> dict[str, Any]:
    """A column for each entry of what holds several, such as rewards by name."""
    found: dict[str, Any] = {}
    for key, thing in line.items():
        found |= (
            {f"{key}: {name}": part for name, part in thing.items()} if isinstance(thing, Mapping) else {key: thing}
        )
    return found


def _completion(thing: Any) -> Part:
    if thing is None:
        return ""
    if finite(thing) is not None:
        return f"{thing:,.4g}" if isinstance(thing, float) else f"{thing:,}"
    text = thing if isinstance(thing, str) else value(thing)
    cut = text if len(text) <= MOST else f"{text[:MOST]} ... ({len(text) - MOST:,} more characters)"
    return el("div", cut, cls="clip") if len(text) > LENGTH else cut
