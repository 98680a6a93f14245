"""What the solver says of one option, and of one fact that it had to wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memcfg.solver.expr import UNSET

KINDS = ("you", "fact", "forced", "overridden", "fallback", "default", "yielded", "unset")


@dataclass(frozen=True)
class Decision:
    """One option of a plan.

    `kind`: you (the user chose it), fact (probed), forced (a rule left no other value), overridden (a rule won against
    the user's other choice), fallback (a request was answered by another value), default (a rule proposed it), yielded
    (a default that gave way to its next proposal), unset. `requested` is absent (`UNSET`) where nothing was requested.
    `antecedents` are the keys that the rule's condition read. The value of a `secret` one is shown nowhere;
    a `free` one may have another where a run goes on from a checkpoint."""

    value: Any
    kind: str
    rule: str | None = None
    because: str | None = None
    antecedents: tuple[str, ...] = ()
    origin: str | None = None
    requested: Any = UNSET
    role: str = "choice"
    secret: bool = False
    free: bool = False


@dataclass(frozen=True)
class Pending:
    """A fact that is not known yet, and the rules that wait for it."""

    fact: str
    rules: tuple[str, ...]
