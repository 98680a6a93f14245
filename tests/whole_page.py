"""A page as a parser sees it, held to what every page of memcfg promises."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "input", "br"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    text: str = ""
    parents: tuple[str, ...] = ()


@dataclass
class WholePage(HTMLParser):
    """Every element in order. Raises `AssertionError` for a page that is not balanced, or would fetch or run anything."""

    source: str
    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()
        assert not self.open, f"not closed: {[e.name for e in self.open]}"
        self._promises()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), parents=tuple(e.name for e in self.open))
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs), parents=tuple(e.name for e in self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop().name == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def count(self, name: str) -> int:
        return sum(e.name == name for e in self.elements)

    def texts(self, name: str) -> list[str]:
        return [e.text for e in self.elements if e.name == name]

    def labels(self, name: str) -> list[str]:
        return [e.attributes.get("aria-label") or "" for e in self.elements if e.name == name]

    def _promises(self) -> None:
        assert self.source.startswith('<!doctype html>\n<html lang="en">')
        assert not re.search(r"https?://", self.source), "an address"
        assert self.count("h1") == 1
        assert self.count("script") == self.count("style") == self.count("main") == 1
        assert not {e.name for e in self.elements} & {"link", "img", "iframe", "object", "embed", "base", "form"}
        ids = [e.attributes["id"] for e in self.elements if "id" in e.attributes]
        assert len(ids) == len(set(ids)), "one id, two elements"
        for e in self.elements:
            assert not [a for a in e.attributes if a.startswith("on") or a in ("style", "src", "srcset")], e
            target = e.attributes.get("href")
            assert target is None or not re.match(r"[a-z]+:|//", target), target
            assert target is None or not target.startswith("#") or target[1:] in ids, target
            if e.name == "th":
                assert e.attributes.get("scope") in ("col", "row")
            if e.name == "table" or e.attributes.get("role") == "img":
                assert e.attributes.get("aria-label"), e
            if e.name == "svg" and "svg" not in e.parents:
                assert e.attributes.get("role") == "img" or e.attributes.get("aria-hidden") == "true", e
        levels = [int(e.name[1]) for e in self.elements if re.fullmatch("h[1-6]", e.name)]
        assert all(b <= a + 1 for a, b in itertools.pairwise(levels)), "a heading's level is skipped"
