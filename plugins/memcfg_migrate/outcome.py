"""What becomes of a config: overrides with their reasons, and remarks on everything that is not one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from memcfg import Problem

KINDS: Final = {
    "open": "to be decided before it is the same run",
    "unread": "not read, because only running the file would tell: append the overrides",
    "learning": "no equivalent, and it changes what is learned",
    "other": "no equivalent; the result is the same without it",
    "there": "what {program} does with this config",
    "differs": "done differently here",
    "same": "nothing to say here: memcfg does it anyway",
}
"""Kinds of remark in the order in which they are told, with their headings."""


@dataclass(frozen=True)
class Carried:
    """An option's value. `said` is what it comes from; `given` is false where that is the other program's default."""

    key: str
    value: Any
    said: str
    given: bool = True


@dataclass(frozen=True)
class Remark:
    kind: str
    key: str
    text: str
    where: str = ""


@dataclass
class Outcome:
    """The result of reading one config of `program`."""

    program: str
    path: str
    trainer: str = ""
    carried: dict[str, Carried] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    written: dict[str, bool] = field(default_factory=dict)
    """What was written, and whether it is the other program's default."""

    def carry(self, key: str, value: Any, said: str, given: bool = True) -> None:
        """Set an option. What was given counts more than a default."""
        if given or key not in self.carried or not self.carried[key].given:
            self.carried[key] = Carried(key, value, said, given)

    def remark(self, kind: str, key: str, text: str, where: str = "") -> None:
        self.remarks.append(Remark(kind, key, text, where))

    def of_kind(self, kind: str) -> list[Remark]:
        return [remark for remark in self.remarks if remark.kind == kind]

    def value(self, key: str, default: Any = None) -> Any:
        """What an option has been set to so far."""
        return self.carried[key].value if key in self.carried else default

    def values(self) -> Mapping[str, Any]:
        return {key: carried.value for key, carried in self.carried.items()}
