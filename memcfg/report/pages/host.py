"""Where and by which command a run was made."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from memcfg.plan import Plan
from memcfg.report.pages.charts import finite
from memcfg.report.pages.frame import Part, details, el, prose, table, together
from memcfg.report.words import count, gib

Object = Mapping[str, Any]


def host(journal: Object, plan: Plan | None, folder: str) -> Markup:
    """The command, the machine and the versions, as far as they were written down."""
    words = journal.get("command")
    parts: list[Part] = []
    if isinstance(words, list):
        parts += [el("h3", "Command"), el("pre", shlex.join(map(str, words)))]
    if plan is not None:
        parts += [
            el(
                "p",
                "The same plan again: ",
                el("code", f"python -m memcfg run {shlex.quote(f'{folder}/resolved.yaml')}"),
            )
        ]
    parts.append(table(("", ""), _machine(journal), label="machine", cls="narrow"))
    versions = journal.get("versions") if isinstance(journal.get("versions"), Mapping) else {}
    rows = {**(versions or {}), **(plan.versions if plan is not None else {})}
    if rows:
        parts.append(
            details(
                "versions",
                table(("package", "version"), list(rows.items()), label="versions", cls="narrow"),
                first=True,
            )
        )
    if plan is not None and plan.active:
        parts.append(el("p", prose(f"plugins that took part: {', '.join(plan.active)}"), cls="soft"))
    return together(parts)


def _machine(journal: Object) -> Iterator[tuple[Part, Part]]:
    found = journal.get("machine")
    machine: Object = found if isinstance(found, Mapping) else {}
    if (cpus := finite(machine.get("cpus"))) is not None:
        memory = finite(machine.get("memory_bytes"))
        yield "host", count(int(cpus), "CPU core") + (f", {gib(memory)} of memory" if memory else "")
    for card in machine.get("gpus") or ():
        yield "GPU", f"{card.get('name')}, {gib(finite(card.get('memory_bytes')) or 0)}"
    for key in ("platform", "python", "started", "ended"):
        if journal.get(key):
            yield key, str(journal[key])
