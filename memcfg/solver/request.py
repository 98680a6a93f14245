"""What the user chose, each value with its origin, and what was probed on the host. The solver's only input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memcfg.errors import Note
from memcfg.solver.decision import Decision


@dataclass(frozen=True)
class Choice:
    """A value that the user chose. `origin`: "command line", or the file (and line, where known) that set it."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Request:
    """`facts` may hold `PENDING` values; a fact that is missing is pending too. `assumed` names facts that the user
    stated (`assume.*`) rather than let be probed. `notes` come from composing (which layer won over which).

    `decided` holds the decisions of an earlier resolution that must stand when more facts are known than at that time:
    options of it that have a value and that nobody chose keep it, with the reason that they had.

    `stated` names facts that a choice decides: the choice's key, and what the fact is without it."""

    choices: Mapping[str, Choice] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    decided: Mapping[str, Decision] = field(default_factory=dict)
    stated: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
