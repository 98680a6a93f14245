"""The frame of every page that memcfg writes: one file, nothing fetched, dark and light, narrow and wide.

Everything is escaped as it is put together (markupsafe), so that data with markup in it is shown, not obeyed. The page's
own policy lets nothing run but the one script in it, and nothing be fetched at all."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup, escape

VOID: Final = ("meta", "input", "br", "rect", "line", "circle", "path", "polygon")
"""Elements without content."""

_NAMES: Final = {"cls": "class", "for_": "for"}
_TICKS = re.compile("`([^`]*)`")

Part = Any
"""`Markup`, or anything else, which is shown as text; None is nothing."""


def el(name: str, /, *children: Part, **attributes: Any) -> Markup:
    """An element. Children that are no `Markup` are escaped, as are attributes (`cls` is `class`, `_` is `-`); those that
    are None or False are left out, True stands alone."""
    given = ((_NAMES.get(key, key.replace("_", "-")), value) for key, value in attributes.items())
    said = Markup("").join(
        Markup(" {}").format(key) if value is True else Markup(' {}="{}"').format(key, value)
        for key, value in given
        if value is not None and value is not False
    )
    if name in VOID:
        return Markup("<{}{}>" if name in ("meta", "input", "br") else "<{}{}/>").format(Markup(name), said)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), said, together(children))


def together(parts: Iterable[Part]) -> Markup:
    """Parts one after the other."""
    return Markup("").join(escape(part) for part in parts if part is not None)


def prose(text: Any) -> Markup:
    """Text in which what stands in backticks is code."""
    pieces = _TICKS.split(str(text))
    return together(el("code", piece) if i % 2 else piece for i, piece in enumerate(pieces))


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Part]], *, label: str, numbers: Sequence[int] = (), cls: str = "",
    name: str | None = None, best: Sequence[int] = (),
) -> Markup:  # fmt: skip
    """A table whose first column heads its rows. `label` is what it is called to who cannot see it; `numbers` are columns
    of numbers, `best` rows that stand out."""
    right = lambda i: "n" if i in numbers else None  # noqa: E731
    head = el("tr", *(el("th", title, scope="col", cls=right(i)) for i, title in enumerate(heads)))
    body = []
    for number, cells in enumerate(rows):
        first, *rest = cells
        more = (_cell(cell, heads[i], right(i)) for i, cell in enumerate(rest, 1))
        body.append(el("tr", el("th", first, scope="row", cls=right(0)), *more, cls="best" if number in best else None))
    made = el("table", el("thead", head), el("tbody", *body), cls=cls or None, id=name, aria_label=label)
    return el("div", made, cls="scroll", tabindex="0", role="region", aria_label=label)


class Cell:
    """A cell with a class of its own."""

    def __init__(self, content: Part, cls: str) -> None:
        self.content, self.cls = content, cls


def _cell(cell: Part, head: str, cls: str | None) -> Markup:
    if isinstance(cell, Cell):
        content, cls = cell.content, " ".join(filter(None, (cls, cell.cls)))
    else:
        content = cell
    return el("td", content, cls=cls, data_label=head or None)


def details(summary: Part, *parts: Part, first: bool = False) -> Markup:
    """What is shown on demand; `first`: opened too when its section is gone to."""
    return el("details", el("summary", summary), *parts, cls="first" if first else None)


def filtered(content: Markup, name: str, what: str) -> Markup:
    """A table with a field that filters its rows; the field shows where there is a script to heed it."""
    field = el(
        "input", type="search", data_filter=name, placeholder=f"filter {what}", aria_label=f"filter {what}", hidden=True
    )
    return together([field, " ", el("span", id=f"{name}-told", cls="soft", role="status"), content])


def pill(text: Part, mood: str = "") -> Markup:
    return el("span", text, cls=f"pill {mood}".strip())


def tiles(found: Iterable[tuple[str, Part, Part]]) -> Markup:
    """Name, value, and a line below it."""
    cards = (
        el("div", el("dt", name), el("dd", value, el("small", more) if more else None)) for name, value, more in found
    )
    return el("dl", *cards, cls="tiles")


def section(name: str, title: str, *parts: Part) -> Markup:
    return el("section", el("h2", title, id=f"{name}-title"), *parts, id=name, aria_labelledby=f"{name}-title")


def page(title: str, head: Part, sections: Sequence[tuple[str, str, Markup]], foot: Part = None) -> str:
    """The whole file. `sections`: name, title and content of each."""
    style, script = _own("page.css"), _own("page.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    links = el("ul", *(el("li", el("a", said, href=f"#{name}")) for name, said, _ in sections))
    top = [
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="generator", content="memcfg"),
        el("title", title),
        Markup("<style>{}</style>").format(Markup(style)),
    ]
    body = [
        el("a", "skip to the content", href="#content", cls="skip"),
        el("header", head, cls="head"),
        el("nav", links, aria_label="sections") if len(sections) > 1 else None,
        el("main", *(section(*found) for found in sections), id="content"),
        el("footer", foot if foot is not None else _made()),
        Markup("<script>{}</script>").format(Markup(script)),
    ]
    document = el(
        "html", el("head", *top), "\n", el("body", *(together([part, "\n"]) for part in body if part)), lang="en"
    )
    return f"<!doctype html>\n{document}\n"


def _made() -> str:
    from memcfg import __version__

    return f"made by memcfg {__version__}; this file needs nothing else and fetches nothing"


@cache
def _own(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
