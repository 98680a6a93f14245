"""What was decided and why, what the live run made of it, and what is worth knowing: sections of a run's page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from memcfg.errors import Note
from memcfg.plan import Plan
from memcfg.report.pages.frame import Cell, Part, details, el, filtered, pill, prose, table, together
from memcfg.report.plan import CHANGED, MASKED, ORDER, shown, tells, why
from memcfg.report.words import count, of, value
from memcfg.solver.decision import Decision
from memcfg.solver.expr import UNSET

MOODS = {"warning": "warn", "deprecation": "warn", "note": "", "error": "bad"}
HEADS = ("option", "asked for", "resolved", "live run", "why")

Effective = Mapping[str, Any]


def decisions(plan: Plan, effective: Effective) -> Markup:
    """Each option that somebody or some condition decided; all of them on demand."""
    told = sorted(
        (key for key, d in plan.decisions.items() if tells(d)), key=lambda key: ORDER.index(plan.decisions[key].kind)
    )
    changed = [key for key in told if plan.decisions[key].kind in CHANGED]
    follows = [key for key in told if key not in changed]
    parts: list[Part] = [
        el("p", "From what was asked for, over what the rules made of it, to what the running model showed once its first step had run. ",
           "Where a cell of the live run is empty, nothing reads that option back.", cls="soft"),
        _table(plan, changed, effective, "decisions that differ from the plain run") if changed else el("p", "Nothing was chosen: this is the plain run."),
    ]  # fmt: skip
    if follows:
        parts.append(
            details(
                f"{count(len(follows), 'default')} that depend on something",
                _table(plan, follows, effective, "defaults with a condition"),
            )
        )
    everything = filtered(
        _table(plan, list(plan.decisions), effective, "every option", name="options"), "options", "options"
    )
    parts.append(details(f"all {count(len(plan.decisions), 'option')}", everything))
    return together(parts)


def _table(plan: Plan, keys: Sequence[str], effective: Effective, label: str, name: str | None = None) -> Markup:
    return table(
        HEADS, (_row(plan, key, effective.get(key)) for key in keys), label=label, cls="cards facts", name=name
    )


def _row(plan: Plan, key: str, live: Any) -> list[Part]:
    decision = plan.decisions[key]
    rule = el("span", f" {decision.rule}", cls="soft") if decision.rule else None
    return [
        el("code", key), _code(_asked(decision)), _code(shown(key, decision)), _live(key, decision, live),
        together([prose(why(decision, key in plan.assumed)), rule]),
    ]  # fmt: skip


def _code(text: str) -> Part:
    return el("code", text) if text else ""


def _asked(decision: Decision) -> str:
    if decision.requested is UNSET:
        return ""
    return MASKED if decision.secret else of("", decision.requested)


def _live(key: str, decision: Decision, live: Any) -> Part:
    if not isinstance(live, Mapping) or "effective" not in live:
        return ""
    text = el("code", MASKED if decision.secret else of(key, live["effective"]))
    return text if agrees(live) else Cell(text, "wrong")


def agrees(live: Mapping[str, Any]) -> bool:
    """Whether an entry of `effective.json` says that the run did as the plan says."""
    return bool(live.get("resolved") == live.get("effective"))


def proof(canaries: Mapping[str, Any], effective: Effective) -> Markup | None:
    """What was checked before the first step, and what was read back after it."""
    parts: list[Part] = []
    if canaries:
        rows = [(name, prose(seen)) for name, seen in canaries.items()]
        parts += [
            el("h3", "Canaries on the first batch"),
            table(("canary", "what was seen"), rows, label="canaries", cls="cards"),
        ]
    entries = {key: live for key, live in effective.items() if isinstance(live, Mapping)}
    if entries:
        wrong = [key for key, live in entries.items() if not agrees(live)]
        said = f"{count(len(wrong), 'option')} not as planned" if wrong else f"all {len(entries)} as planned"
        parts += [el("h3", "Read back from the live run ", pill(said, "bad" if wrong else "good")), _evidence(entries)]
    return together(parts) if parts else None


def _evidence(entries: Mapping[str, Mapping[str, Any]]) -> Markup:
    rows = (
        (el("code", key), el("code", value(live.get("resolved"))), _seen(live), prose(live.get("evidence", "")))
        for key, live in entries.items()
    )
    return table(("option", "resolved", "live run", "seen in"), rows, label="evidence", cls="cards")


def _seen(live: Mapping[str, Any]) -> Part:
    text = el("code", value(live.get("effective")))
    return text if agrees(live) else Cell(text, "wrong")


def notes(found: Iterable[Note], ledger: Mapping[str, Any], faults: Iterable[tuple[str, str]]) -> Markup | None:
    """Notes of the plan and the ledger, and what of the folder could not be shown."""
    rows = [*_notes(found), *((pill("note"), prose(text), "ledger") for text in ledger.get("notes") or ())]
    rows += [
        (pill("not shown", "warn"), together([el("code", file), " ", prose(text)]), "run folder")
        for file, text in faults
    ]
    return table(("level", "note", "from"), rows, label="notes", cls="cards") if rows else None


def _notes(found: Iterable[Note]) -> Iterator[tuple[Part, Part, Part]]:
    for note in found:
        yield pill(note.level, MOODS.get(note.level, "")), prose(note.text), el("span", note.rule, cls="soft")
