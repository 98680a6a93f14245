"""What a request comes to, as plain data that can be compared: a plan, a conflict or a refusal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from memcfg.errors import Conflict, ConflictError, RequestError
from memcfg.solver.request import Choice, Request
from memcfg.solver.resolve import resolve
from memcfg.solver.theory import Theory

CPU: Final[Mapping[str, Any]] = {"device.type": "cpu", "device.capability": 0, "world.size": 1}
GPU: Final[Mapping[str, Any]] = {"device.type": "cuda", "device.capability": 90, "world.size": 1}
"""What the host is like, as far as a test says nothing else."""


def request_of(values: Mapping[str, Any], theory: Theory, host: Mapping[str, Any] = CPU) -> Request:
    """A request for these values; keys of facts say what the host is like. Facts that nobody states are not known."""
    facts = {**host, **{key: value for key, value in values.items() if _is_fact(key, theory)}}
    choices = {key: Choice(value, "test") for key, value in values.items() if key not in facts}
    return Request(choices=choices, facts={key: facts[key] for key in facts if key in theory.options})


def _is_fact(key: str, theory: Theory) -> bool:
    return key in theory.options and theory.options[key].role == "fact"


def outcome(
    theory: Theory, request: Request, keys: Collection[str], *, apart_from: str | None = None, repairs: bool = True
) -> Any:
    """Everything that the request comes to, as far as `keys` are concerned.

    Of a conflict, what belongs to the plugin `apart_from` is left out: with it installed there may be more ways out, and a
    reason may have one more step ("and nobody switched it on")."""
    try:
        found = resolve(theory, request)
    except ConflictError as error:
        ways = error.repairs if repairs else ()
        own = [way for way in ways if apart_from is None or not any(apart_from in said for said in way)]
        return [_part(conflict, f"{apart_from}.") for conflict in error.conflicts], own
    except RequestError as error:
        return str(error)
    return {key: found.decisions[key] for key in keys}, found.notes, found.pending


def _part(conflict: Conflict, apart_from: str) -> tuple[frozenset[str], frozenset[str]]:
    """The options and the rules of a conflict."""
    options, rules = (
        frozenset(name for name in names if not name.startswith(apart_from))
        for names in (conflict.options, conflict.rules)
    )
    return options, rules
