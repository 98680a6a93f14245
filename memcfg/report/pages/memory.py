"""Memory: what was measured, what had been predicted, and the predicted step as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from markupsafe import Markup

from memcfg.report.memory import COLORS
from memcfg.report.pages.charts import areas, finite, swatch
from memcfg.report.pages.frame import Part, el, table, together
from memcfg.report.words import GIB, gib

Object = Mapping[str, Any]


def memory(data: Object) -> Markup:
    """`memory.json`. On a CPU nothing is compared, and the page says so."""
    measured, predicted = _object(data, "measured"), _object(data, "predicted")
    if "cuda" not in str(measured.get("source", "")):
        return together([_resident(measured)])
    parts: list[Part] = [_sides(measured, predicted)]
    if "error" in predicted:
        parts.append(el("p", f"There is no prediction: {predicted['error']}"))
    return together([*parts, *_pictures(measured, predicted)])


def _resident(measured: Object) -> Markup:
    peak = finite(measured.get("peak_bytes"))
    told = f"At most {gib(peak)} were resident in the process. " if peak else "No peak was written down. "
    return el(
        "p", told, "On a CPU the memory of a step is not measured: this is all that the process held since it started, "
        "imports and data preparation included, so it is compared with no prediction.",
    )  # fmt: skip


def _sides(measured: Object, predicted: Object) -> Markup:
    rows = []
    whole, step = finite(measured.get("peak_bytes")), _of_steps(measured)
    for key, name, seen in (
        ("peak_bytes", "allocated at a step's peak", step),
        ("reserved_bytes", "reserved by the allocator", finite(measured.get("reserved_bytes"))),
    ):
        told = finite(predicted.get(key))
        off = f"{100 * (told - seen) / seen:+.2f} %" if seen and told is not None else ""
        rows.append((name, "" if seen is None else gib(seen), "" if told is None else gib(told), off))
    if whole and step and whole > step:
        rows.append(("allocated while evaluating or saving", gib(whole), "", ""))
    return table(
        ("", "measured", "predicted", "prediction off by"),
        rows,
        label="measured and predicted memory",
        numbers=(1, 2, 3),
        cls="narrow",
    )


def _of_steps(measured: Object) -> float | None:
    """The peak of steps, where it was told apart from that of the run."""
    return finite(measured.get("step_bytes")) or finite(measured.get("peak_bytes"))


def _pictures(measured: Object, predicted: Object) -> Iterator[Part]:
    peak = _of_steps(measured)
    marks = [(peak, f"measured peak {gib(peak)}")] if peak else []
    drawn = timeline(_object(predicted, "timeline"), marks)
    if drawn is not None:
        yield el("figure", el("figcaption", el("b", "Predicted live memory through one step")), drawn)
    sizes = {
        kind: size for kind in _object(predicted, "kinds") if (size := finite(predicted["kinds"][kind])) is not None
    }
    if sizes:
        yield el("h3", "At the predicted peak")
        yield kinds(sizes)


def timeline(line: Object, marks: Iterable[tuple[float, str]] = ()) -> Markup | None:
    """A timeline (`memcfg.planner.prediction.Timeline` as plain data) as stacked areas, with lines at `marks` (bytes)."""
    ms = [finite(at) or 0.0 for at in line.get("ms") or ()]
    stacked = {
        kind: [finite(size) or 0.0 for size in sizes]
        for kind, sizes in _object(line, "kinds").items()
        if len(sizes) == len(ms)
    }
    if not ms or not stacked:
        return None
    end = max(ms[-1] * (1 + 1 / len(ms)), 1e-9)
    highest = max(map(sum, zip(*stacked.values(), strict=True)))
    shown = [(size, said) for size, said in marks if 0 < size < 1.5 * highest]
    top = 1.05 * max([highest, *(size for size, _ in shown)])
    begins = [(at, said) for at, said in line.get("phases") or ()]
    legend = (el("li", _square(kind), f"{kind} ", el("strong", gib(max(sizes)))) for kind, sizes in stacked.items())
    picture = areas(
        "live memory by kind through one step", ms, stacked, COLORS, end, top, marks=shown, begins=begins, form=_gib, unit=f"about {end:.0f} ms",
    )  # fmt: skip
    return together([el("ul", *legend, cls="legend"), picture])


def kinds(sizes: Mapping[str, float]) -> Markup:
    """What the peak is made of."""
    total = sum(sizes.values()) or 1
    rows = [(together([_square(kind), kind]), gib(size), f"{size / total:.1%}") for kind, size in sizes.items()]
    return table(("kind", "size", "share"), rows, label="memory at the peak by kind", numbers=(1, 2), cls="narrow")


def _square(kind: str) -> Markup:
    return swatch(color=COLORS.get(kind, "#888888"))


def _gib(size: float) -> str:
    if not size:
        return "0"
    return f"{size / GIB:.3g} GiB" if size >= GIB / 10 else f"{size / 2**20:.3g} MiB"


def _object(data: Object, key: str) -> Object:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}
