"""A migration for a terminal, and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from memcfg.report.errors import conflict_lines, error_text, note_lines
from memcfg.report.words import WIDTH, count, value, wrapped
from memcfg_migrate.outcome import KINDS, Outcome
from memcfg_migrate.plan import Migration, lines

FIRST: Final = ("open", "unread")
"""Kinds of remark without whose answer the command is not the same run."""


ELSEWHERE: Final = "to see whether it holds on another machine, append what it has, for example `assume.device=h100`"


def text(found: Migration, everything: bool = False) -> Iterator[str]:
    """Lines: the command, where each part comes from, what else there is to know, and what the compiler says."""
    out = found.outcome
    yield from lines(found, WIDTH)
    for kind in FIRST:
        yield from _remarks(out, kind, KINDS[kind])
    yield ""
    yield from _reasons(found)
    for kind, heading in KINDS.items():
        if kind not in FIRST and (kind != "same" or everything):
            yield from _remarks(out, kind, heading.format(program=out.program))
    if (more := len(out.of_kind("same"))) and not everything:
        yield ""
        yield f"{count(more, 'other argument')} that memcfg heeds anyway (`--all`)"
    yield from _verdict(found)


def _reasons(found: Migration) -> Iterator[str]:
    yield f"where it comes from, in {found.outcome.program}'s words"
    width = min(max((len(text) for text, _ in found.reasons), default=0), 36) + 2
    for override, carried in found.reasons:
        lead = f"  {override:<{width}}" if len(override) < width else f"  {override}\n{' ' * (width + 2)}"
        yield from (lead + "\n".join(wrapped(carried.said, " " * (width + 2), first=" " * (width + 2))).strip()).split(
            "\n"
        )


def _remarks(out: Outcome, kind: str, heading: str) -> Iterator[str]:
    remarks = out.of_kind(kind)
    if not remarks:
        return
    yield ""
    yield heading
    for remark in remarks:
        where = f" ({remark.where})" if remark.where and remark.where not in remark.key else ""
        yield from wrapped(f"{remark.key}{where}: {remark.text}", "    ", first="  ")


def _verdict(found: Migration) -> Iterator[str]:
    yield ""
    if found.error is not None:
        from memcfg import ConflictError

        if isinstance(found.error, ConflictError):
            yield "memcfg finds no plan for this"
            yield from conflict_lines(found.error, "to repair it, append", "no single change repairs this")
            if any("on this host" in conflict.text for conflict in found.error.conflicts):
                yield ""
                yield from wrapped(ELSEWHERE, "  ", first="  ")
        else:
            yield from error_text(found.error).split("\n")
        return
    plan = found.plan
    notes = [] if plan is None else [note for note in plan.notes if note.level != "note"]
    yield "memcfg has a plan for this: `resolve` in front of the overrides shows it"
    yield from note_lines(notes)


def data(found: Migration) -> dict[str, Any]:
    """The object that `--json` prints."""
    from memcfg.report import jsonform

    out = found.outcome
    failed = jsonform.failure(found.error) if found.error is not None else {}
    return {
        "ok": found.exit_code == 0,
        "program": out.program,
        "file": out.path,
        "trainer": out.trainer,
        "overrides": found.overrides,
        "command": found.command(),
        "carried": [
            {"override": text, "key": c.key, "value": c.value, "from": c.said, "given": c.given}
            for text, c in found.reasons
        ],
        **{kind: [{"what": r.key, "text": r.text, "where": r.where} for r in out.of_kind(kind)] for kind in KINDS},
        "errors": [*(jsonform.problem(p) for p in out.problems), *failed.get("errors", [])],
        "conflicts": failed.get("conflicts", []),
        "repairs": failed.get("repairs", []),
        "notes": [] if found.plan is None else jsonform.notes(found.plan.notes),
    }


def preset(found: Migration) -> str:
    """A file for `experiment=NAME`, which chooses what the command would."""
    out = found.outcome
    head = [
        "# @package _global_",
        f"# {out.trainer} from {out.program}'s {out.path}; each line says what it comes from.",
    ]
    sections: dict[str, list[str]] = {}
    for _, carried in found.reasons:
        section, _, name = carried.key.partition(".")
        said = carried.said.replace("`", "").replace("\n", " ")
        sections.setdefault(section, []).append(f"  {name}: {_yaml(carried.value)}  # {said}")
    return "\n".join([*head, *(line for s, body in sections.items() for line in (f"{s}:", *body))]) + "\n"


def _yaml(thing: Any) -> str:
    import json

    return json.dumps(thing) if isinstance(thing, (str, list, dict)) else value(thing)
