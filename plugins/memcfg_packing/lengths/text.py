"""A profile for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memcfg.report.tables import NARROW
from memcfg.report.words import count, gib, width, wrapped
from memcfg_packing.lengths.profile import Candidate, Profile

BAR = 36


def show(profile: Profile) -> list[Any]:
    """Everything to print, in order."""
    return [*headline(profile), "", *distribution(profile), "", *table(profile), "", *verdict(profile)]


def headline(profile: Profile) -> Iterator[str]:
    yield f"{count(profile.documents, 'document')}, {count(profile.tokens, 'token')}"
    yield ""
    if width() < NARROW:
        yield from _quantiles_below(profile)
        return
    yield f"  {'tokens in a document':<26}" + "".join(
        f"{t:>8}" for t in ("mean", "median", "90 %", "95 %", "99 %", "all")
    )
    yield _quantiles("as trained on", profile.mean, profile.quantiles)
    if profile.bare_quantiles is not None and profile.added is not None:
        yield _quantiles("text alone (a sample)", profile.mean - profile.added, profile.bare_quantiles)
        yield f"  template and special tokens add {profile.added:.1f} tokens to a document"


def _quantiles_below(profile: Profile) -> Iterator[str]:
    """The same where there is no room for columns."""
    yield from wrapped(f"tokens in a document: {profile.mean:,.0f} in the mean", indent="  ", first="")
    for share, length in profile.quantiles.items():
        yield f"  {share:.0%} have at most {length:,}"
    if profile.added is not None:
        said = f"template and special tokens add {profile.added:.1f} tokens to a document"
        yield from wrapped(said, indent="  ", first="")


def _quantiles(name: str, mean: float, quantiles: dict[float, int]) -> str:
    return f"  {name:<26}{mean:>8,.0f}" + "".join(f"{length:>8,}" for length in quantiles.values())


def distribution(profile: Profile) -> Iterator[str]:
    """One bar for each range of lengths."""
    most = max(documents for _, _, documents, _ in profile.bins)
    yield "documents by length"
    for first, last, documents, _ in profile.bins:
        span = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        bar = "█" * round(min(BAR, width() - 30) * documents / most) or ("▏" if documents else "")
        yield f"{span:>18}  {bar} {documents / profile.documents:.1%}".rstrip()


def table(profile: Profile) -> Iterator[str]:
    """One line for each candidate."""
    memory = any(c.memory is not None for c in profile.candidates)
    first, widths = (["length", "lost"], SLIM) if memory else (["max_length", "tokens lost"], WIDTHS)
    yield from wrapped("what a `truncation.max_length` would cost", indent="  ", first="")
    if width() < sum(WIDTHS):
        yield from _candidates_below(profile)
        return
    titles = [*first, *TITLES]
    yield "  " + "".join(f"{t:>{w}}" for t, w in zip(titles, widths, strict=True)) + ("        peak" if memory else "")
    for found in profile.candidates:
        mark = "*" if found.length == profile.recommended else " "
        peak = "" if not memory else f"{gib(found.memory) if found.memory is not None else '-':>12}"
        yield f"{mark} " + "".join(f"{cell:>{w}}" for cell, w in zip(cells(found), widths, strict=True)) + peak


def _candidates_below(profile: Profile) -> Iterator[str]:
    """The candidates where there is no room for columns."""
    titles = ("tokens lost", "documents cut", "padding", "bfd rows", "filled", "bfd_split rows", "filled")
    for found in profile.candidates:
        length, *rest = cells(found)
        yield f"{'*' if found.length == profile.recommended else ' '} {length}"
        told = ", ".join(f"{title} {cell}" for title, cell in zip(titles, rest, strict=True))
        yield from wrapped(told + (f", peak {gib(found.memory)}" if found.memory is not None else ""), indent="    ")


TITLES = ["docs cut", "padding", "bfd rows", "fill", "split rows", "fill"]
WIDTHS = (10, 12, 9, 9, 11, 8, 11, 8)
SLIM = (8, 7, 9, 8, 9, 7, 11, 7)
"""With a column for the peak memory beside."""


def cells(found: Candidate) -> list[str]:
    """A candidate as text."""
    packed = [text for p in found.packed.values() for text in (f"{p.rows:,}", f"{p.fill:.2%}")]
    return [
        f"{found.length:,}",
        _share(found.truncated_share),
        _share(found.cut_share),
        f"{found.padding:.1%}",
        *packed,
    ]


def _share(share: float) -> str:
    return "0" if not share else f"{share:.2%}" if share >= 0.0001 else "<0.01%"


def verdict(profile: Profile) -> list[str]:
    return [
        *wrapped(f"recommended: `truncation.max_length={profile.recommended}`: {profile.reason}"),
        *wrapped(
            f"padding: of shuffled batches of {profile.batch}; tokens lost: with `packing=bfd` or without packing "
            "(`bfd_split` loses none)"
        ),
    ]
