"""The file form of a plan: what `resolved.yaml` in a run folder holds, and what `memcfg run` reads.

The file is YAML without tags (JSON is read as well):

    memcfg_plan: 1                 version of this form
    memcfg: 0.1.0                  what wrote it
    digest: sha256:...             of everything below; a file that was edited is refused
    options: {KEY: {value, kind, role, rule, because, antecedents, origin, requested, secret, free}}
    active, providers, assumed, fact_reads, pending, notes, versions

A field that is absent is empty: an option without `value` is unset, one without `requested` was not requested. The value
of a secret option is not written: `run` takes it from the environment (see `revealed`).
Floats are written with a dot (`1.0e-05`) because other YAML readers take `1e-05` for text.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from memcfg.errors import Note, Problem, RunError
from memcfg.files import reason, write_atomic
from memcfg.plan import Plan
from memcfg.solver.decision import KINDS, Decision, Pending
from memcfg.solver.expr import UNSET

FILE = "resolved.yaml"
"""What a plan is called in the folder of a run, and in a checkpoint."""

FORM = 1
MASKED = "***"
_DIGEST = "sha256:"


def save(plan: Plan, path: str | os.PathLike[str]) -> Path:
    """Write the plan, atomically. Raises `RunError` where the file cannot be written."""
    return write_atomic(path, dumps(plan))


def dumps(plan: Plan) -> str:
    """The text of the plan's file."""
    from memcfg import __version__

    head = {"memcfg_plan": FORM, "memcfg": __version__, "digest": digest(plan)}
    return yaml.dump(
        {**head, **to_data(plan)}, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True
    )  # fmt: skip


def load(path: str | os.PathLike[str]) -> Plan:
    """Read a plan. Raises `RunError` for a file that is missing, damaged, edited, foreign or newer than this memcfg."""
    data = _read(Path(path))
    _check_form(data, path)
    try:
        plan = from_data(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(path, f"is damaged: {type(error).__name__}: {error}") from error
    if data.get("digest") != digest(plan):
        raise _unusable(
            path, "was changed after it was written: its digest differs", "resolve the changed request anew"
        )
    return plan


def digest(plan: Plan) -> str:
    """A fingerprint of everything that the plan says, stable over files, machines and Python versions."""
    text = json.dumps(to_data(plan), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return _DIGEST + hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------------------------------------------------- plain data


def to_data(plan: Plan) -> dict[str, Any]:
    """The plan as plain data: mappings, lists, text, numbers, booleans and null."""
    data: dict[str, Any] = {
        "options": {key: _decision_data(decision) for key, decision in plan.decisions.items()},
        "active": list(plan.active),
        "providers": dict(plan.providers),
        "assumed": list(plan.assumed),
        "fact_reads": list(plan.fact_reads),
        "pending": [{"fact": p.fact, "rules": list(p.rules)} for p in plan.pending],
        "notes": [_note_data(note) for note in plan.notes],
        "versions": dict(plan.versions),
    }
    return {name: value for name, value in data.items() if value or name in ("options", "active")}


def from_data(data: Mapping[str, Any]) -> Plan:
    """The plan that `to_data` described."""
    return Plan(
        decisions={key: _decision(fields) for key, fields in data["options"].items()},
        active=tuple(data.get("active", ())),
        providers=dict(data.get("providers", {})),
        notes=tuple(Note(n["level"], n["rule"], n["text"], n.get("data", {})) for n in data.get("notes", ())),
        pending=tuple(Pending(p["fact"], tuple(p["rules"])) for p in data.get("pending", ())),
        assumed=tuple(data.get("assumed", ())),
        fact_reads=tuple(data.get("fact_reads", ())),
        versions=dict(data.get("versions", {})),
    )


def _decision_data(decision: Decision) -> dict[str, Any]:
    fields = {
        "value": _masked(decision, decision.value),
        "kind": decision.kind,
        "role": decision.role,
        "secret": decision.secret or None,
        "free": decision.free or None,
        "requested": _masked(decision, decision.requested),
        "rule": decision.rule,
        "because": decision.because,
        "antecedents": list(decision.antecedents) or None,
        "origin": decision.origin,
    }
    may_be_null = ("value", "requested")
    return {n: v for n, v in fields.items() if v is not UNSET and (v is not None or n in may_be_null)}


def _masked(decision: Decision, value: Any) -> Any:
    return MASKED if decision.secret and value is not None and value is not UNSET else plain(value)


def revealed(plan: Plan, environment: Mapping[str, str]) -> Plan:
    """The plan with the values of its secrets, each from its own variable. Raises `RunError` naming those that are not
    there."""
    hidden = [key for key, decision in plan.decisions.items() if decision.secret and decision.value == MASKED]
    missing = [key for key in hidden if secret_variable(key) not in environment]
    if missing:
        text = "a secret is not written to plans"
        raise RunError(*(Problem(text, key=key, fix=f"put it into `{secret_variable(key)}`") for key in missing))
    known = {key: replace(plan.decisions[key], value=environment[secret_variable(key)]) for key in hidden}
    return replace(plan, decisions={**plan.decisions, **known})


def secrets(plan: Plan) -> dict[str, str]:
    """What to put into the environment of a process that is to run the plan."""
    return {
        secret_variable(key): str(decision.value)
        for key, decision in plan.decisions.items()
        if decision.secret and decision.value is not UNSET and decision.value is not None
    }


def secret_variable(key: str) -> str:
    """The environment variable for the value of a secret option."""
    return f"MEMCFG_SECRET_{key.upper().replace('.', '_').replace('-', '_')}"


def _decision(fields: Mapping[str, Any]) -> Decision:
    if fields["kind"] not in KINDS:
        raise ValueError(f"unknown kind `{fields['kind']}`")
    return Decision(
        value=fields.get("value", UNSET),
        kind=fields["kind"],
        rule=fields.get("rule"),
        because=fields.get("because"),
        antecedents=tuple(fields.get("antecedents", ())),
        origin=fields.get("origin"),
        requested=fields.get("requested", UNSET),
        role=fields.get("role", "choice"),
        secret=fields.get("secret", False),
        free=fields.get("free", False),
    )


def _note_data(note: Note) -> dict[str, Any]:
    data = {"level": note.level, "rule": note.rule, "text": note.text}
    return {**data, "data": plain(note.data)} if note.data else data


def plain(value: Any) -> Any:
    """A value as plain data: tuples and sets become lists; what YAML has no word for becomes text."""
    if value is UNSET or value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return [plain(item) for item in sorted(value, key=repr)]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)


# -------------------------------------------------------------------------------------------------------------- YAML

_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Dumper(_SafeDumper):  # type: ignore[misc]
    """Plain data only, floats with a dot, no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Plain data only; reads `1e-05` as a number, as JSON and YAML 1.2 do."""


def _float(dumper: Any, value: float) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:float", float_text(value))


def float_text(value: float) -> str:
    """A float that every YAML reader takes for a float."""
    if not math.isfinite(value):
        return ".nan" if value != value else (".inf" if value > 0 else "-.inf")
    mantissa, mark, exponent = repr(value).partition("e")
    return repr(value) if not mark else f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"


_Dumper.add_representer(float, _float)
for _side in (_Loader, _Dumper):  # the writer too, so that the text `1e-5` is quoted
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        data = yaml.load(text, Loader=_Loader)
    except OSError as error:
        raise RunError(Problem(f"cannot read the plan: {reason(error)}", key=str(path))) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unusable(path, f"is damaged: {_yaml_fault(error)}") from error
    if not isinstance(data, Mapping) or "memcfg_plan" not in data:
        raise _unusable(path, "is no memcfg plan", "a run folder's plan is called `resolved.yaml`")
    return data


def _check_form(data: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    form = data["memcfg_plan"]
    if form != FORM:
        text = f"has form {form}, and this memcfg reads form {FORM}"
        raise _unusable(path, f"{text}: it was written by memcfg {data.get('memcfg', '?')}", "use that version")
    if not isinstance(data.get("options"), Mapping):
        raise _unusable(path, "is damaged: it has no `options`")


def _yaml_fault(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)


def _unusable(path: str | os.PathLike[str], text: str, fix: str | None = None) -> RunError:
    return RunError(Problem(text, key=os.fspath(path), fix=fix))
