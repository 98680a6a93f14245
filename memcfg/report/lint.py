"""What is wrong with rules: where, what, and a request that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from memcfg.report.words import count, wrapped

if TYPE_CHECKING:
    from memcfg.solver.lint import Finding
    from memcfg.solver.theory import Theory


class Judged(Protocol):
    """See `memcfg.registry.lint.Linted`."""

    @property
    def found(self) -> tuple[Finding, ...]: ...
    @property
    def allowed(self) -> tuple[tuple[Finding, str], ...]: ...


def show_lint(linted: Judged, theory: Theory, everything: bool = False) -> list[str]:
    """A paragraph for each fault, then how much was looked at."""
    lines = [line for finding in linted.found for line in (*_told(finding, theory), "")]
    if everything:
        for finding, why in linted.allowed:
            lines += [*wrapped(f"allowed: {finding.kind}: `{finding.about}`", indent="  ", first="")]
            lines += [*wrapped(f"because {why}", indent="    ", first="  "), ""]
    return [*lines, _total(linted, theory)]


def _told(finding: Finding, theory: Theory) -> Iterator[str]:
    yield from wrapped(f"{finding.kind}: `{finding.about}`", indent="  ", first="")
    for line in finding.text.splitlines():
        yield from wrapped(line, indent="    ", first="  ")
    for rule in finding.rules:
        yield f"  {_rule(rule, theory)}"
    if finding.witness:
        yield from wrapped(f"shown by {' '.join(f'`{word}`' for word in finding.witness)}", indent="    ", first="  ")


def _rule(rule: str, theory: Theory) -> str:
    known = theory.rules.get(rule)
    if known is None or known.source is None:
        return f"rule `{rule}`"
    file = Path(known.source.file)
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"rule `{rule}` ({shown}:{known.source.line})"


def _total(linted: Judged, theory: Theory) -> str:
    looked = f"{count(len(theory.rules), 'rule')} and {count(len(theory.options), 'option')}"
    found = count(len(linted.found), "fault") if linted.found else "no fault"
    allowed = f", {len(linted.allowed)} allowed by the plugins (`--all` says why)" if linted.allowed else ""
    return f"{looked}: {found}{allowed}"


def lint_data(linted: Judged, theory: Theory) -> dict[str, Any]:
    """What `lint --json` prints."""
    return {
        "ok": not linted.found,
        "findings": [_data(finding, theory) for finding in linted.found],
        "allowed": [{**_data(finding, theory), "because": why} for finding, why in linted.allowed],
        "rules": len(theory.rules),
        "options": len(theory.options),
    }


def _data(finding: Finding, theory: Theory) -> dict[str, Any]:
    known = [theory.rules[rule] for rule in finding.rules if rule in theory.rules]
    return {
        "kind": finding.kind,
        "about": finding.about,
        "text": finding.text,
        "rules": list(finding.rules),
        "sources": [str(rule.source) for rule in known if rule.source is not None],
        "witness": list(finding.witness),
    }
