"""What fits a budget, as a ladder of technique sets that can be pasted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from memcfg.planner.inverse import Inverse
from memcfg.planner.search import Ladder, Rung
from memcfg.report.memory import sized
from memcfg.report.tables import NARROW
from memcfg.report.words import count, gib, width, wrapped

INDENT: Final = "     "
STEP: Final = "step: time of a step against the fastest set of all, fitting or not (estimate)"


def show_ladder(ladder: Ladder, inverse: Inverse | None) -> list[Any]:
    """The request as it is, the rungs, and what else can be said, as things to print in order."""
    lines = [f"what fits {sized(ladder.budget)} on {ladder.machine.name}", ""]
    lines += _asked(ladder)
    if ladder.rungs:
        lines += ["", *_rungs(ladder)]
    else:
        lines += ["", *_nothing(ladder)]
    lines += ["", *_offers(ladder)] if ladder.offers else []
    lines += ["", *_omitted(ladder)] if ladder.omitted else []
    if inverse is not None and (inverse.longest or inverse.most_rows or inverse.card):
        lines += ["", *_inverse(ladder, inverse)]
    return lines


def _asked(ladder: Ladder) -> Iterator[str]:
    needed = ladder.asked.prediction.needed_bytes
    verdict = ladder.asked.prediction.verdict(ladder.budget)
    said = {"fits": "it fits", "close": "too close to call", "too large": "too large"}[verdict]
    yield f"as asked it needs {gib(needed)}: {said}"
    yield f"{count(ladder.valid, 'valid set')}, {ladder.tried} looked at"


def _rungs(ladder: Ladder) -> Iterator[str]:
    if width() < NARROW:
        yield from _below(ladder)
        return
    yield f"{INDENT}{'needs':>10}  {'step':>8}  append"
    for number, rung in enumerate(ladder.rungs, 1):
        prediction = rung.prediction
        ratio = prediction.step_ms / ladder.fastest_ms
        first, *more = wrapped(" ".join(rung.set.overrides) or "nothing", indent=" " * 28)
        yield f"{number:>3}. {gib(prediction.needed_bytes):>10}  {ratio:>7.2f}x  {first.strip()}"
        yield from more
        for change in rung.set.changes:
            yield from wrapped(f"changes the result: {change}", indent=" " * 30, first=" " * 28)
    yield ""
    yield from wrapped(STEP, indent="  ", first="")


def _below(ladder: Ladder) -> Iterator[str]:
    """The rungs where there is no room for columns."""
    for number, rung in enumerate(ladder.rungs, 1):
        needs, ratio = gib(rung.prediction.needed_bytes), rung.prediction.step_ms / ladder.fastest_ms
        yield f"{number}. needs {needs}, step {ratio:.2f}x"
        yield from wrapped(" ".join(rung.set.overrides) or "nothing to append", indent="   ")
        for change in rung.set.changes:
            yield from wrapped(f"changes the result: {change}", indent="   ")
    yield ""
    yield from wrapped(STEP, indent="  ", first="")


def _nothing(ladder: Ladder) -> Iterator[str]:
    least = ladder.least
    needed = least.prediction.needed_bytes
    weights = least.prediction.kinds.get("weights", 0) + least.prediction.outside_bytes
    if weights > ladder.budget:
        yield from wrapped(f"nothing fits: the weights alone take {gib(weights)} with what lies outside the allocator")
    else:
        yield "nothing fits"
    yield from wrapped(f"the least that was found is {gib(needed)}, with: {_named(least)}", indent="  ", first="")


def _named(rung: Rung) -> str:
    return f"`{' '.join(rung.set.overrides)}`" if rung.set.overrides else "the request as it is"


def _offers(ladder: Ladder) -> Iterator[str]:
    said = "not considered, as it changes what is learned (`plan.allow=[...]` or `plan.allow=all`)"
    yield from wrapped(said, indent="  ", first="")
    for offer in ladder.offers:
        yield from wrapped(offer, indent="    ", first="  ")


def _omitted(ladder: Ladder) -> Iterator[str]:
    yield from wrapped("left out, as they cannot be simulated", indent="  ", first="")
    for omitted in ladder.omitted:
        yield from wrapped(omitted, indent="    ", first="  ")


def _inverse(ladder: Ladder, inverse: Inverse) -> Iterator[str]:
    rung = ladder.rungs[-1] if ladder.rungs else ladder.least
    yield from wrapped(f"with {_named(rung)}", indent="  ", first="")
    rows = (
        (f"longest `{inverse.length}`", _longest(inverse)), ("largest `run.batch_size`", inverse.most_rows),
        ("smallest card that runs it", inverse.card),
    )  # fmt: skip
    room = 32 if width() >= NARROW else 0
    for name, found in rows:
        if found is not None:
            yield from wrapped(
                f"{name:<{room}} {f'{found:,}' if isinstance(found, int) else found}", indent="    ", first="  "
            )


def _longest(inverse: Inverse) -> str | None:
    if inverse.longest is None:
        return None
    return f"{inverse.longest:,}{': the model has no more positions' if inverse.at_the_end else ''}"


def ladder_data(ladder: Ladder, inverse: Inverse | None) -> dict[str, Any]:
    """What `plan --json` prints."""
    return {
        "ok": True,
        "budget_bytes": ladder.budget,
        "machine": ladder.machine.name,
        "valid": ladder.valid,
        "tried": ladder.tried,
        "asked": _rung(ladder.asked, ladder),
        "rungs": [_rung(rung, ladder) for rung in ladder.rungs],
        "least": _rung(ladder.least, ladder),
        "offers": list(ladder.offers),
        "omitted": list(ladder.omitted),
        "max_length": None if inverse is None else inverse.longest,
        "max_length_of": None if inverse is None else inverse.length,
        "max_length_bound": None if inverse is None else inverse.bound,
        "max_length_ends_with": _ended_by(inverse),
        "batch_size": None if inverse is None else inverse.most_rows,
        "smallest_card": None if inverse is None else inverse.card,
    }


def _ended_by(inverse: Inverse | None) -> str | None:
    """What the longest length is bounded by."""
    if inverse is None or inverse.longest is None:
        return None
    return "positions" if inverse.at_the_end else "memory"


def _rung(rung: Rung, ladder: Ladder) -> dict[str, Any]:
    prediction = rung.prediction
    return {
        "overrides": list(rung.set.overrides),
        "changes": list(rung.set.changes),
        "needed_bytes": prediction.needed_bytes,
        "allocated_bytes": prediction.allocated_bytes,
        "reserved_bytes": prediction.reserved_bytes,
        "host_bytes": prediction.host_bytes,
        "step_ms": prediction.step_ms,
        "relative_time": round(prediction.step_ms / ladder.fastest_ms, 3),
        "verdict": prediction.verdict(ladder.budget),
    }
