"""Every failure memcfg explains is a `MemcfgError` that carries its facts as fields.

The text a person reads is made in `memcfg.report`; `str(error)` is the plain-text fallback, good enough for a log.
Exit codes: 1 the run could not go on, 2 the request could not be resolved, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where (`key`: a dotted option, a file, a plugin), what (`text`), and what to write."""

    text: str
    key: str | None = None
    nearest: tuple[str, ...] = ()
    fix: str | None = None

    def __str__(self) -> str:
        head = f"`{self.key}`: {self.text}" if self.key else self.text
        hint = f"; did you mean {' or '.join(f'`{n}`' for n in self.nearest)}?" if self.nearest else ""
        return head + hint + (f"\n  {self.fix}" if self.fix else "")


class MemcfgError(Exception):
    """Base of every error memcfg explains. `problems` holds at least one `Problem`."""

    exit_code = 1

    def __init__(self, *problems: Problem | str) -> None:
        self.problems: tuple[Problem, ...] = tuple(Problem(p) if isinstance(p, str) else p for p in problems)
        super().__init__(*self.problems)

    def __str__(self) -> str:
        return "\n".join(str(p) for p in self.problems)


class RequestError(MemcfgError):
    """The request itself is malformed: an unknown key or group, a wrong type, a value out of range, a removed option."""

    exit_code = 2


@dataclass(frozen=True)
class Conflict:
    """A minimal set of rules and choices that cannot hold together, retold as a chain of sentences in `text`."""

    options: tuple[str, ...]
    rules: tuple[str, ...]
    text: str


Repairs = Iterable[Sequence[str]]


@dataclass(frozen=True)
class Price:
    """What one step needs of a card, in bytes, on which machine, and whether that fits the budget; or the reason why it is
    not known."""

    needed_bytes: int | None
    machine: str = ""
    verdict: str | None = None
    reason: str = ""


class ConflictError(MemcfgError):
    """The request is well formed, but no plan satisfies it. `repairs` are override lists that were re-solved; a function
    that finds them is called when they are first looked at. `prices`, where somebody worked them out, are the repairs' own."""

    exit_code = 2

    def __init__(
        self, conflicts: Sequence[Conflict], repairs: Repairs | Callable[[], Repairs] = (), notes: Iterable[Any] = ()
    ) -> None:
        self.conflicts = tuple(conflicts)
        self._repairs = repairs
        self.notes = tuple(notes)
        self.prices: tuple[Price, ...] = ()
        super().__init__(*(Problem(c.text) for c in self.conflicts))

    @cached_property
    def repairs(self) -> tuple[tuple[str, ...], ...]:
        found = self._repairs() if callable(self._repairs) else self._repairs
        return tuple(tuple(repair) for repair in found)


@dataclass(frozen=True)
class Source:
    """Where an author wrote a rule or an option."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class RuleError(MemcfgError):
    """A rule base that cannot be loaded: unknown option, value outside a domain, duplicate id, cycle, ambiguity.

    `rules` names the offending rule ids, `source` where the (first) one was written."""

    exit_code = 2

    def __init__(self, text: str, rules: Sequence[str] = (), source: Source | None = None) -> None:
        self.rules = tuple(rules)
        self.source = source
        super().__init__(Problem(text, key=str(source) if source else None))


class PluginError(MemcfgError):
    """A plugin that cannot be used. `plugin` and `distribution` name it; `trace` is its own traceback, if it raised."""

    def __init__(self, text: str, plugin: str, distribution: str | None = None, trace: str | None = None) -> None:
        self.plugin, self.distribution, self.trace = plugin, distribution, trace
        super().__init__(Problem(text, key=plugin if distribution is None else f"{plugin} ({distribution})"))


class DataError(MemcfgError):
    """Data that cannot be used: missing, empty, a wrong column, a corrupt line, no target left."""


class RunError(MemcfgError):
    """A run that cannot start or go on: output folder, model folder, host facts, a failed canary."""


class Away(RunError):
    """Something that the run needs between its steps no longer answers, a server say. The run itself is sound: where it has
    taken a step it is saved before it ends. `everywhere`: all of several processes raise it, so that they can save together."""

    everywhere = False


class Lost(RunError):
    """Another process of the run is gone, which this one noticed when it waited for it: a consequence, not the fault.
    `stands_in`: whether this process says so, because the first one cannot."""

    stands_in = False


class OutOfMemory(RunError):
    """The device ran out of memory while training. `allocated_bytes` and `reserved_bytes`: the most in use until then;
    `lengths`: the documents of each row of the largest micro-batch so far; `room_bytes`: what could have been reserved."""

    def __init__(
        self, text: str, allocated_bytes: int, reserved_bytes: int, lengths: Sequence[Sequence[int]] = (),
        room_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.allocated_bytes, self.reserved_bytes = allocated_bytes, reserved_bytes
        self.room_bytes = room_bytes
        self.lengths = tuple(tuple(row) for row in lengths)
        super().__init__(Problem(text, fix="`memcfg plan` lists the technique sets that fit"))


@dataclass(frozen=True)
class Note:
    """Something the user should know though the request holds. `level`: note, deprecation or warning."""

    level: str
    rule: str
    text: str
    data: dict[str, Any] = field(default_factory=dict, compare=False)
