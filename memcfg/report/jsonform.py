"""The objects that `--json` prints. Their form is part of memcfg's interface."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memcfg.errors import ConflictError, MemcfgError, Note, Price, Problem
from memcfg.plan import Plan
from memcfg.planfile import plain
from memcfg.solver.decision import Decision
from memcfg.solver.expr import UNSET

if TYPE_CHECKING:
    from memcfg.registry import Installed


def text(data: Any) -> str:
    """One JSON object, in a form that both people and programs read."""
    return json.dumps(_finite(data), indent=2, ensure_ascii=False)


def success(plan: Plan) -> dict[str, Any]:
    """What `resolve --json` prints for a plan."""
    return {
        "ok": True,
        "options": {key: option(decision) for key, decision in plan.decisions.items()},
        "pending": [{"fact": p.fact, "rules": list(p.rules)} for p in plan.pending],
        "notes": notes(plan.notes),
        "active": list(plan.active),
    }


def failure(error: MemcfgError) -> dict[str, Any]:
    """What `resolve --json` prints for a request that has no plan."""
    conflict = error if isinstance(error, ConflictError) else None
    found = [] if conflict is None else conflict.conflicts
    prices = [] if conflict is None else [price(one) for one in conflict.prices]
    return {
        "ok": False,
        "errors": [] if conflict is not None else [problem(p) for p in error.problems],
        "conflicts": [{"options": list(c.options), "rules": list(c.rules), "text": c.text} for c in found],
        "repairs": [] if conflict is None else [list(repair) for repair in conflict.repairs],
        **({"prices": prices} if prices else {}),
        "notes": [] if conflict is None else notes(conflict.notes),
    }


def price(found: Price) -> dict[str, Any]:
    """What one step needs, or in `reason` why that is not known."""
    return asdict(found)


def option(decision: Decision) -> dict[str, Any]:
    """One option. `value` is null for an unset one (its `kind` tells); `requested` is absent if nothing was."""
    fields = {
        "value": None if decision.value is UNSET else _told(decision, decision.value),
        "kind": decision.kind,
        "rule": decision.rule,
        "because": decision.because,
        "origin": decision.origin,
    }
    return fields if decision.requested is UNSET else {**fields, "requested": _told(decision, decision.requested)}


def _told(decision: Decision, value: Any) -> Any:
    return "***" if decision.secret and value is not None else plain(value)


def problem(found: Problem) -> dict[str, Any]:
    said = f"{found.text}; {found.fix}" if found.fix else found.text
    return {"key": found.key, "text": said, "nearest": list(found.nearest)}


def notes(found: Sequence[Note]) -> list[dict[str, Any]]:
    return [{"level": note.level, "rule": note.rule, "text": note.text} for note in found]


def plugins(found: Sequence[Installed]) -> dict[str, Any]:
    """What `plugins --json` prints."""
    return {"ok": True, "plugins": [_plugin(installed) for installed in found]}


def _plugin(found: Installed) -> dict[str, Any]:
    declared = found.plugin
    return {
        "name": found.name,
        "distribution": found.distribution,
        "version": found.version,
        "entry_point": found.entry_point,
        "status": found.status,
        "error": found.error,
        "import_ms": round(found.import_ms, 2),
        "doc": declared.doc if declared else "",
        "options": [o.key for o in declared.options] if declared else [],
        "rules": [r.id for r in declared.rules] if declared else [],
        "provides": {key: list(values) for key, values in declared.provides.items()} if declared else {},
        "groups": sorted(declared.groups) if declared else [],
        "commands": sorted(declared.commands) if declared else [],
        "conf": declared.conf if declared else None,
        "hooks": declared.hooks if declared else None,
        "not_yet": {str(item.when): item.because for item in declared.not_yet} if declared else {},
    }


def _finite(data: Any) -> Any:
    """JSON has no word for infinity: it is written as text."""
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {key: _finite(item) for key, item in data.items()}
    return [_finite(item) for item in data] if isinstance(data, (list, tuple)) else data
